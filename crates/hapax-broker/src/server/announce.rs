//! The first line of a broker that is a program.

use std::{
    io::{self, Write},
    net::SocketAddr,
};

/// Says where it is as one line of JSON.
///
/// ```text
/// {"bootstrap":"127.0.0.1:39213","control":"http://127.0.0.1:40111"}
/// ```
pub(crate) fn announce(
    bootstrap: &str,
    control: Option<SocketAddr>,
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let control = control.map(|address| format!("http://{address}"));
    writeln!(out, "{}", serde_json::json!({ "bootstrap": bootstrap, "control": control }))?;
    out.flush()
}
