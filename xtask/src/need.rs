//! What the machine must have, looked for before anything is built.
//!
//! As root on Debian or Ubuntu the missing packages are installed; elsewhere the install line of each system is
//! printed and the command ends with exit code 2. Nothing else of the machine is touched.

use std::env;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

use xtask::kafka;

use crate::Failure;

const OLDEST_JAVA: u32 = 17;
const OLDEST_NODE: u32 = 14;

/// What `java` calls the module that compiles a source file; only a development kit has it.
const COMPILER_MODULE: &[u8] = b"jdk.compiler@";

/// Something that a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Java,
    JavaCompiler,
    Maven,
    Python,
    Node,
    Compiler,
    CppCompiler,
    Git,
}

impl Need {
    fn is_met(self) -> bool {
        match self {
            Need::Java => java_version().is_some_and(|version| version >= OLDEST_JAVA),
            Need::JavaCompiler => java_compiles(),
            Need::Maven => is_on_path("mvn"),
            Need::Python => succeeds(
                "python3",
                &["-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))"],
            ),
            Need::Node => node_major().is_some_and(|major| major >= OLDEST_NODE) && is_on_path("npm"),
            Need::Compiler => is_on_path("cc"),
            Need::CppCompiler => is_on_path("c++"),
            Need::Git => is_on_path("git"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Need::Java => "a Java runtime, 17 or newer",
            Need::JavaCompiler => "a Java development kit, 17 or newer",
            Need::Maven => "Maven",
            Need::Python => "Python 3.10 or newer with venv",
            Need::Node => "Node.js 14 or newer with npm",
            Need::Compiler => "a C compiler",
            Need::CppCompiler => "a C++ compiler",
            Need::Git => "git",
        }
    }

    fn debian(self) -> &'static [&'static str] {
        match self {
            Need::Java => &["default-jre-headless"],
            Need::JavaCompiler => &["default-jdk-headless"],
            Need::Maven => &["maven"],
            Need::Python => &["python3-venv"],
            Need::Node => &["nodejs", "npm"],
            Need::Compiler => &["gcc", "libc6-dev"],
            Need::CppCompiler => &["g++"],
            Need::Git => &["git"],
        }
    }

    fn fedora(self) -> &'static str {
        match self {
            Need::Java => "java-21-openjdk-headless",
            Need::JavaCompiler => "java-21-openjdk-devel",
            Need::Maven => "maven",
            Need::Python => "python3",
            Need::Node => "nodejs npm",
            Need::Compiler => "gcc",
            Need::CppCompiler => "gcc-c++",
            Need::Git => "git",
        }
    }

    fn macos(self) -> Option<&'static str> {
        match self {
            Need::Java => Some("openjdk"),
            Need::JavaCompiler => Some("openjdk"),
            Need::Maven => Some("maven"),
            Need::Python => Some("python"),
            Need::Node => Some("node"),
            Need::Git => Some("git"),
            Need::Compiler | Need::CppCompiler => None, // come with the command line tools
        }
    }
}

/// Makes sure that the machine has what is needed.
pub(crate) fn provide(needs: &[Need]) -> Result<(), Failure> {
    let missing = |needs: &[Need]| needs.iter().copied().filter(|need| !need.is_met()).collect::<Vec<_>>();
    let mut lacking = missing(needs);
    if lacking.is_empty() {
        return Ok(());
    }
    if may_install() {
        install(&lacking);
        lacking = missing(needs);
    }
    if lacking.is_empty() { Ok(()) } else { Err(Failure::Missing(instructions(&lacking))) }
}

/// Root on a system with Debian's package tool.
fn may_install() -> bool {
    let id = Command::new("id").arg("-u").output();
    let is_root = id.is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    is_root && is_on_path("apt-get")
}

/// A failure is not looked at: what counts is whether the needs are met afterwards.
fn install(needs: &[Need]) {
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        drop(command.status());
    };
    apt(&["update", "--quiet"]);
    let mut packages: Vec<&str> = needs.iter().flat_map(|need| need.debian()).copied().collect();
    for (need, newest, oldest) in [
        (Need::Java, "default-jre-headless", "openjdk-17-jre-headless"),
        (Need::JavaCompiler, "default-jdk-headless", "openjdk-17-jdk-headless"),
    ] {
        if needs.contains(&need) && succeeds("apt-cache", &["show", oldest]) {
            packages.retain(|package| *package != newest);
            packages.push(oldest);
        }
    }
    println!("xtask: installing {}", packages.join(" "));
    let mut arguments = vec!["install", "--quiet", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    apt(&arguments);
}

fn instructions(needs: &[Need]) -> String {
    let names: Vec<&str> = needs.iter().map(|need| need.name()).collect();
    let debian: Vec<&str> = needs.iter().flat_map(|need| need.debian()).copied().collect();
    let fedora: Vec<&str> = needs.iter().map(|need| need.fedora()).collect();
    let mut formulae: Vec<&str> = needs.iter().filter_map(|need| need.macos()).collect();
    formulae.dedup();
    let mut macos = Vec::new();
    if needs.contains(&Need::Compiler) || needs.contains(&Need::CppCompiler) {
        macos.push("xcode-select --install".to_owned());
    }
    if !formulae.is_empty() {
        macos.push(format!("brew install {}", formulae.join(" ")));
    }
    if needs.contains(&Need::Java) || needs.contains(&Need::JavaCompiler) {
        macos.push("export JAVA_HOME=\"$(brew --prefix openjdk)\"".to_owned());
    }
    format!(
        "this machine lacks {}; install it and try again:\n  \
         Debian, Ubuntu:  sudo apt-get install {}\n  \
         Fedora:          sudo dnf install {}\n  \
         macOS:           {}",
        names.join(", "),
        debian.join(" "),
        fedora.join(" "),
        macos.join(" && ")
    )
}

fn is_on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn succeeds(program: impl AsRef<OsStr>, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Does Java compile source files?
fn java_compiles() -> bool {
    let modules = Command::new(kafka::java()).arg("--list-modules").output();
    modules.is_ok_and(|output| {
        output.stdout.split(|byte| *byte == b'\n').any(|line| line.starts_with(COMPILER_MODULE))
    })
}

fn node_major() -> Option<u32> {
    let output = Command::new("node").arg("--version").output().ok()?;
    let words = String::from_utf8(output.stdout).ok()?;
    words.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

fn java_version() -> Option<u32> {
    let output = Command::new(kafka::java()).arg("-version").output().ok()?;
    java_major(&String::from_utf8_lossy(&output.stderr))
}

/// The major version in the words of `java -version`, where 8 and older call themselves `1.8`.
fn java_major(words: &str) -> Option<u32> {
    let version = words.split('"').nth(1)?;
    let mut parts = version.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    match parts.next()?.parse().ok()? {
        1 => parts.next()?.parse().ok(),
        major => Some(major),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_tells_its_version_in_old_and_new_words() {
        assert_eq!(java_major("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK"), Some(17));
        assert_eq!(java_major("openjdk version \"21\" 2023-09-19"), Some(21));
        assert_eq!(java_major("openjdk version \"25-ea\" 2025-09-16"), Some(25));
        assert_eq!(java_major("java version \"1.8.0_392\""), Some(8));
        assert_eq!(java_major("The operation couldn't be completed."), None);
    }

    #[test]
    fn what_is_missing_is_named_with_a_line_for_each_system() {
        let text = instructions(&[Need::Java, Need::Compiler]);
        assert!(text.contains("sudo apt-get install default-jre-headless gcc libc6-dev"), "{text}");
        assert!(text.contains("sudo dnf install java-21-openjdk-headless gcc"), "{text}");
        assert!(
            text.contains("xcode-select --install && brew install openjdk && export JAVA_HOME="),
            "{text}"
        );
    }
}
