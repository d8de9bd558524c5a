//! `cargo xtask kafka`: fetch Apache Kafka, or run brokers by hand.

use std::io::{self, Write};

use serde_json::json;
use xtask::kafka::{Cluster, Installation, Version};

use crate::Failure;
use crate::arguments::Arguments;
use crate::need::{self, Need};

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Failure> {
    match arguments.command().as_deref() {
        Some("provision") => provision(arguments),
        Some("start") => start(arguments),
        Some(other) => Err(Failure::Usage(format!("there is no command \"kafka {other}\""))),
        None => Err(Failure::Usage("kafka: provision or start?".to_owned())),
    }
}

fn provision(arguments: Arguments) -> Result<(), Failure> {
    arguments.nothing_left()?;
    need::provide(&[Need::Java, Need::Maven])?;
    for version in Version::ALL {
        println!("kafka {version}: {}", Installation::provide(version)?.directory().display());
    }
    Ok(())
}

/// Runs a cluster until standard input ends. Ctrl-C ends this process, and with it the brokers.
fn start(mut arguments: Arguments) -> Result<(), Failure> {
    let version = match arguments.value("--version")? {
        None => Version::V4_4,
        Some(number) => Version::from_number(&number).ok_or_else(|| {
            let known: Vec<&str> = Version::ALL.into_iter().map(Version::number).collect();
            Failure::Usage(format!("kafka {number} is not offered: take one of {}", known.join(", ")))
        })?,
    };
    let mut builder = Cluster::builder(version).nodes(arguments.parsed("--nodes")?.unwrap_or(1));
    if let Some(level) = arguments.parsed("--transaction-version")? {
        builder = builder.transaction_version(level);
    }
    while let Some(property) = arguments.value("--property")? {
        let (name, value) = property
            .split_once('=')
            .ok_or_else(|| Failure::Usage(format!("--property takes NAME=VALUE, not {property:?}")))?;
        builder = builder.property(name, value);
    }
    arguments.nothing_left()?;
    need::provide(&[Need::Java, Need::Maven])?;
    let cluster = builder.start()?;
    println!("{}", describe(&cluster));
    io::stdout().flush()?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

fn describe(cluster: &Cluster) -> serde_json::Value {
    let node = |id: u32| {
        json!({
            "id": id,
            "port": cluster.port(id),
            "pid": cluster.process_id(id),
            "log": cluster.log_path(id).display().to_string(),
        })
    };
    json!({
        "bootstrap": cluster.bootstrap(),
        "version": cluster.version().number(),
        "nodes": cluster.nodes().into_iter().map(node).collect::<Vec<_>>(),
    })
}
