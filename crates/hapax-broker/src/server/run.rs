//! The broker as a program: what a command line calls.

use super::{Broker, ServerOptions, StartError};
use crate::state::Settings;
use std::io::{self, Write};

/// Starts a broker, prints where it is as one line of JSON, and serves until `end` is ready.
///
/// ```text
/// {"bootstrap":"127.0.0.1:39213","control":"http://127.0.0.1:40111"}
/// ```
///
/// # Errors
/// The broker does not start, or nobody reads the line.
pub async fn run(
    settings: Settings,
    options: ServerOptions,
    out: &mut (dyn Write + Send),
    end: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let broker = Broker::start(settings, options).await?;
    announce(&broker.bootstrap(), broker.control(), out)?;
    end.await;
    broker.stop().await;
    Ok(())
}

/// Why the program ends.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The first line could not be printed.
    #[error("cannot print the broker's address: {0}")]
    Print(#[from] io::Error),
}

/// Prints the first line.
pub(crate) fn announce(
    bootstrap: &str,
    control: Option<std::net::SocketAddr>,
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let control = control.map(|address| format!("http://{address}"));
    writeln!(out, "{}", serde_json::json!({ "bootstrap": bootstrap, "control": control }))?;
    out.flush()
}
