//! `hapax broker`: the broker of tests and demos for anybody's client, or its faults in front of a real cluster.

use super::signals::{Signals, parent_gone};
use crate::{arguments::BrokerArguments, broker};
use hapax::{Code, Host, JobError};
use hapax_broker::{Proxy, ProxyOptions, ServerOptions, Settings, server};
use std::io;

/// Serves until a signal, or until standard input closes where that was asked for; answers the exit code.
///
/// # Errors
/// It does not start.
pub(crate) async fn broker(host: &Host, arguments: BrokerArguments) -> Result<u8, JobError> {
    let end = ended(host, arguments.with_parent)?;
    match &arguments.proxy {
        Some(upstream) => proxy(upstream, &arguments, end).await?,
        None => serve(host, &arguments, end).await?,
    }
    Ok(0)
}

async fn serve(
    host: &Host,
    arguments: &BrokerArguments,
    end: impl Future<Output = ()>,
) -> Result<(), JobError> {
    let kept = arguments.data.as_ref().map_or_else(
        || "keeps nothing".to_owned(),
        |folder| format!("keeps all that was ever written in {}", folder.display()),
    );
    tracing::warn!("for tests and demos, not for production: one process, nothing is replicated; {kept}");
    let settings = Settings { nodes: arguments.nodes, ..broker::settings(host) };
    let options = ServerOptions {
        listen: Some(arguments.listen),
        advertise: arguments.advertise.clone(),
        control: arguments.control,
        data: arguments.data.clone(),
        ..ServerOptions::default()
    };
    let served = server::run(settings, options, &mut io::stdout(), end).await;
    served.map_err(|error| match error {
        server::RunError::Start(error) => broker::not_started("the broker", &error),
        server::RunError::Print(error) => unread(&error),
    })
}

async fn proxy(
    upstream: &str,
    arguments: &BrokerArguments,
    end: impl Future<Output = ()>,
) -> Result<(), JobError> {
    tracing::warn!(
        "for tests, not for production: a proxy in front of {upstream} that loses what its rules say"
    );
    let options = ProxyOptions {
        listen: arguments.listen,
        advertise: arguments.advertise.clone(),
        control: arguments.control,
    };
    let proxy = Proxy::start(upstream, options).await;
    let proxy = proxy.map_err(|error| broker::not_started("the proxy", &error))?;
    proxy.announce(&mut io::stdout()).map_err(|error| unread(&error))?;
    end.await;
    proxy.stop().await;
    Ok(())
}

/// Nobody can use a broker whose address was not read.
fn unread(error: &io::Error) -> JobError {
    let message = format!("the broker's address cannot be written to standard output: {error}");
    JobError::Configuration { code: Code::Usage, message }
}

/// Ready with the first signal, or when standard input closes where that counts.
fn ended(host: &Host, with_parent: bool) -> Result<impl Future<Output = ()> + use<>, JobError> {
    let mut signals = Signals::listen();
    let parent = parent_gone(host, with_parent)?;
    Ok(async move {
        tokio::select! {
            (name, _) = signals.next() => tracing::info!("{name}: ends"),
            () = parent => {}
        }
    })
}
