//! The jars of one Kafka version, fetched with Maven into the cache; the Java programs that run them.
//!
//! The closure comes from `xtask/kafka/pom.xml`. A changed pom makes a new cache entry.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Version;
use crate::cache;
use crate::process;

const POM: &str = include_str!("../../kafka/pom.xml");
const LOG4J2: &str = include_str!("../../kafka/log4j2.properties");
const RELOAD4J: &str = include_str!("../../kafka/reload4j.properties");

/// A registry that drops one of a hundred downloads must not cost a test run.
const DOWNLOAD_TRIES: u32 = 3;

/// Start-up counts more than throughput in tests that start many brokers, and memory is shared by many.
const JVM: [&str; 6] = [
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
];

/// One Kafka version, ready to run.
#[derive(Debug, Clone)]
pub struct Installation {
    version: Version,
    directory: PathBuf,
}

impl Installation {
    /// The installation of `version`, fetched if the cache lacks it (about 55 MB).
    ///
    /// # Errors
    /// Maven is missing or failed, or the cache cannot be written.
    pub fn provide(version: Version) -> io::Result<Self> {
        let recipe = format!("{POM}{LOG4J2}{RELOAD4J}{:?}", binding(version));
        let name = format!("kafka/{version}-{}", cache::fingerprint(&recipe));
        let directory = cache::entry(&name, |directory| fetch(version, directory))?;
        Ok(Self { version, directory })
    }

    /// The version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Where it is in the cache.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A Java command that runs `main_class` of this installation and logs to standard error from `log_level`
    /// (`INFO`, `WARN`, `ERROR`) on.
    pub fn command(&self, main_class: &str, log_level: &str) -> Command {
        let mut command = self.java(log_level);
        command.arg(main_class);
        command
    }

    /// As [`Installation::command`], for a program of one Java source file, which is compiled as it starts. Needs a
    /// Java development kit.
    pub fn source(&self, file: &Path, log_level: &str) -> Command {
        let mut command = self.java(log_level);
        command.arg(file);
        command
    }

    fn java(&self, log_level: &str) -> Command {
        let mut command = Command::new(java());
        let (property, file) = match self.version {
            Version::V4_4 => ("log4j2.configurationFile", "log4j2.properties"),
            Version::V3_9 => ("log4j.configuration", "reload4j.properties"),
        };
        command
            .args(JVM)
            .arg(format!("-Dhapax.log.level={log_level}"))
            .arg(format!("-D{property}=file:{}", self.directory.join(file).display()))
            .arg("-cp")
            .arg(self.directory.join("jars").join("*"));
        command
    }
}

/// The Java program: `$JAVA_HOME/bin/java` where that exists, else `java` of the path.
pub fn java() -> PathBuf {
    let home = env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin").join("java"));
    home.filter(|java| java.is_file()).unwrap_or_else(|| PathBuf::from("java"))
}

/// Group, artifact and version of the slf4j binding.
fn binding(version: Version) -> [&'static str; 3] {
    match version {
        Version::V4_4 => ["org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.5"],
        Version::V3_9 => ["org.slf4j", "slf4j-reload4j", "1.7.36"],
    }
}

fn fetch(version: Version, directory: &Path) -> io::Result<()> {
    let pom = directory.join("pom.xml");
    fs::write(&pom, POM)?;
    fs::write(directory.join("log4j2.properties"), LOG4J2)?;
    fs::write(directory.join("reload4j.properties"), RELOAD4J)?;
    let mut tries = 1;
    loop {
        match copy_jars(version, &pom, directory) {
            Err(_) if tries < DOWNLOAD_TRIES => tries += 1,
            outcome => return outcome,
        }
    }
}

/// `--update-snapshots` because Maven remembers a download that failed and would not try again for a day.
fn copy_jars(version: Version, pom: &Path, directory: &Path) -> io::Result<()> {
    let [group, artifact, binding] = binding(version);
    process::run(
        Command::new("mvn")
            .args(["--batch-mode", "--no-transfer-progress", "--update-snapshots", "-Dstyle.color=never"])
            .arg("--file")
            .arg(pom)
            .arg(format!("-Dkafka.version={version}"))
            .arg(format!("-Dbinding.group={group}"))
            .arg(format!("-Dbinding.artifact={artifact}"))
            .arg(format!("-Dbinding.version={binding}"))
            .arg(format!("-DoutputDirectory={}", directory.join("jars").display()))
            .args(["-DincludeScope=runtime", "dependency:copy-dependencies"]),
    )
    .map(drop)
}
