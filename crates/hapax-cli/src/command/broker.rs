//! `hapax broker`: the broker of tests and demos for anybody's client, or its faults in front of a real cluster.

use super::signals::{Signals, parent_gone};
use crate::{
    FOUND,
    arguments::BrokerArguments,
    broker::{self, OwnBroker},
    screen::Screen,
};
use hapax::{Code, Host, JobError};
use hapax_broker::{
    Faults, Proxy, ProxyOptions, Rule, ServerOptions, Settings,
    fault::{RuleId, RuleReport},
};
use std::{fmt::Display, io, path::Path};

/// Serves until a signal, or until standard input closes where that was asked for; answers the exit code.
///
/// # Errors
/// It does not start.
pub(crate) async fn broker(host: &Host, screen: &Screen, arguments: BrokerArguments) -> Result<u8, JobError> {
    let rules = arguments.rules.as_deref().map_or(Ok(Vec::new()), |file| read_rules(host, file))?;
    let end = ended(host, arguments.with_parent)?;
    let unfired = match &arguments.proxy {
        Some(upstream) => proxy(upstream, &arguments, rules, end).await?,
        None => serve(host, &arguments, rules, end).await?,
    };
    for rule in &unfired {
        screen.line(&format!("{}: a rule has never acted: {rule}", Code::Audit));
    }
    Ok(if unfired.is_empty() { 0 } else { FOUND })
}

/// Answers the rules that never acted.
async fn serve(
    host: &Host,
    arguments: &BrokerArguments,
    rules: Vec<Rule>,
    end: impl Future<Output = ()>,
) -> Result<Vec<String>, JobError> {
    let kept = arguments.data.as_ref().map_or_else(
        || "keeps nothing".to_owned(),
        |folder| format!("keeps all that was ever written in {}", folder.display()),
    );
    tracing::warn!("for tests and demos, not for production: one process, nothing is replicated; {kept}");
    let settings = broker::settings(host);
    let settings = Settings {
        nodes: arguments.nodes,
        transaction_version: arguments.transaction_version,
        two_phase_commit: arguments.two_phase_commit,
        seed: arguments.seed.unwrap_or(settings.seed),
        ..settings
    };
    let options = ServerOptions {
        listen: Some(arguments.listen),
        advertise: arguments.advertise.clone(),
        control: arguments.control,
        data: arguments.data.clone(),
        ..ServerOptions::default()
    };
    tokio::pin!(end);
    // On a thread of its own, so that a long journal does not keep a signal waiting.
    let own = tokio::select! {
        own = OwnBroker::start(host, "the broker", settings, options) => own?,
        () = &mut end => return Ok(Vec::new()),
    };
    let rules = put_in_force(own.broker().faults(), rules)?;
    own.broker().announce(&mut io::stdout()).map_err(|error| unread(&error))?;
    end.await;
    let unfired = unfired(own.broker().faults(), &rules);
    own.stop().await;
    Ok(unfired)
}

async fn proxy(
    upstream: &str,
    arguments: &BrokerArguments,
    rules: Vec<Rule>,
    end: impl Future<Output = ()>,
) -> Result<Vec<String>, JobError> {
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
    let rules = put_in_force(proxy.faults(), rules)?;
    proxy.announce(&mut io::stdout()).map_err(|error| unread(&error))?;
    end.await;
    let unfired = unfired(proxy.faults(), &rules);
    proxy.stop().await;
    Ok(unfired)
}

fn read_rules(host: &Host, file: &Path) -> Result<Vec<Rule>, JobError> {
    let refused = |error: &dyn Display| {
        usage(format!("the rules of {} cannot be used: {error}; a list of rules is wanted", file.display()))
    };
    let text = host.files().read_to_string(file).map_err(|error| refused(&error))?;
    serde_json::from_str(&text).map_err(|error| refused(&error))
}

fn put_in_force(faults: &Faults, rules: Vec<Rule>) -> Result<Vec<RuleId>, JobError> {
    let add = |(index, rule)| {
        faults.add(rule).map_err(|error| usage(format!("rule {} of --rules: {error}", index + 1)))
    };
    rules.into_iter().enumerate().map(add).collect()
}

/// Of these rules, those that never acted, by name where they have one. One that was taken away is nobody's business.
fn unfired(faults: &Faults, rules: &[RuleId]) -> Vec<String> {
    let named = |report: RuleReport| {
        report.rule.name.clone().unwrap_or_else(|| serde_json::json!(report.rule).to_string())
    };
    faults.unfired().into_iter().filter(|report| rules.contains(&report.id)).map(named).collect()
}

fn usage(message: String) -> JobError {
    JobError::Configuration { code: Code::Usage, message }
}

/// Nobody can use a broker whose address was not read.
fn unread(error: &io::Error) -> JobError {
    usage(format!("the broker's address cannot be written to standard output: {error}"))
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
