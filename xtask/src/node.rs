//! kafkajs, a Kafka client in JavaScript: the second opinion of a client that shares no code with any other here.
//!
//! The package is fetched with npm into the cache, once a version. It has no dependencies.

use std::io;
use std::process::Command;

use crate::cache;
use crate::process;

const PACKAGE: &str = "kafkajs@2.2.4";

/// A Node.js that finds kafkajs; the caller adds a program and its arguments.
///
/// # Errors
/// `node` or `npm` is missing, or the package could not be fetched.
pub fn command() -> io::Result<Command> {
    process::run(Command::new("node").arg("--version")).map_err(missing)?;
    let entry = cache::entry(&format!("node/{PACKAGE}"), |directory| {
        let arguments = ["install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"];
        let mut install = Command::new("npm");
        install.args(arguments).arg("--prefix").arg(directory).arg(PACKAGE);
        process::run(&mut install).map(drop).map_err(missing)
    })?;
    let mut command = Command::new("node");
    command.env("NODE_PATH", entry.join("node_modules"));
    Ok(command)
}

fn missing(error: io::Error) -> io::Error {
    let text = "kafkajs needs Node.js and npm (Debian, Ubuntu: apt-get install nodejs npm; Fedora: dnf install nodejs npm; \
                macOS: brew install node)";
    io::Error::new(error.kind(), format!("{error}\n{text}"))
}
