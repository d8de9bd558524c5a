//! Requests that any broker can answer: metadata, coordinators, finalized features.

use super::{BTreeSet, Client, CoordinatorKind, Features, Inner, Pool, Purpose, State, limits};
use crate::{
    ClientConfig, ClientError, KafkaCode, NodeId,
    connection::{Connection, OpenError, Opening, ask_versions, open},
    error::{CallError, RequestKind},
    metadata::{self, Address, Snapshot, TopicMetadata},
    wire::{self, Request},
};
use hapax_commit::TransactionVersion;
use hapax_host::{Host, Instant};
use kafka_protocol::messages::{FindCoordinatorRequest, MetadataRequest};
use std::{
    future::Future,
    ops::RangeInclusive,
    sync::{Arc, Mutex, Weak},
};

/// Batched keys: offered by every broker from Kafka 3.0.
const FIND_COORDINATOR: RangeInclusive<i16> = 4..=4;

pub(super) async fn connect(host: Host, config: ClientConfig) -> Result<Client, ClientError> {
    if config.bootstrap.is_empty() {
        return Err(ClientError::Config("the bootstrap list is empty; write host:port,host:port".to_owned()));
    }
    let mut tried = Vec::new();
    let start = start_at(&host, config.bootstrap.len());
    for index in 0..config.bootstrap.len() {
        let address = &config.bootstrap[(start + index) % config.bootstrap.len()];
        match introduce(&host, &config, address).await {
            Ok((connection, snapshot)) => return assemble(host, config, &connection, snapshot),
            Err(error @ ClientError::TooOld { .. }) => return Err(error),
            Err(error) => tried.push(format!("{}:{}: {error}", address.0, address.1)),
        }
    }
    Err(ClientError::Unreachable { tried: tried.join("; ") })
}

fn start_at(host: &Host, count: usize) -> usize {
    usize::try_from(host.random_u64() % (count.max(1) as u64)).unwrap_or(0)
}

async fn introduce(
    host: &Host,
    config: &ClientConfig,
    address: &Address,
) -> Result<(Connection, Snapshot), ClientError> {
    let opening = Opening { host, config, node: NodeId::BOOTSTRAP, address };
    let connection = open(opening).await.map_err(|error| match error {
        OpenError::TooOld { lacks } => {
            ClientError::TooOld { address: format!("{}:{}", address.0, address.1), lacks }
        }
        OpenError::Failed(cause) => {
            CallError::NotSent { api: "connect", node: NodeId::BOOTSTRAP, cause }.into()
        }
    })?;
    let snapshot = ask_metadata(&connection, &metadata::request(std::iter::empty())).await?;
    Ok((connection, snapshot))
}

fn assemble(
    host: Host,
    config: ClientConfig,
    connection: &Connection,
    snapshot: Snapshot,
) -> Result<Client, ClientError> {
    let cluster_id = snapshot.cluster_id.clone().ok_or_else(|| CallError::Malformed {
        api: "Metadata",
        node: connection.node(),
        reason: "no cluster id".into(),
    })?;
    let inner = Inner {
        pool: Pool::new(host.clone(), config.clone()),
        host,
        config,
        cluster_id,
        state: Mutex::new(State::default()),
        refreshing: tokio::sync::Mutex::new(None),
        upkeep: Mutex::new(None),
    };
    inner.learn(connection.broker_versions());
    inner.state().metadata.merge(snapshot);
    let inner = Arc::new(inner);
    let task = inner.host.spawn(keep_fresh(Arc::downgrade(&inner), inner.host.clone(), inner.config.clone()));
    *inner.upkeep.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(task);
    Ok(Client { inner })
}

/// New partitions and moved leaders are noticed even where nothing fails.
async fn keep_fresh(inner: Weak<Inner>, host: Host, config: ClientConfig) {
    loop {
        host.sleep(host.jitter(config.metadata_max_age)).await;
        let Some(inner) = inner.upgrade() else { return };
        if let Err(error) = refresh(&Client { inner }, &[]).await {
            tracing::debug!(%error, "periodic metadata refresh failed");
        }
    }
}

/// Asks one broker after another until one answers: those with an open connection first, then the other known ones,
/// then the bootstrap addresses.
async fn ask_any<T, F>(client: &Client, ask: impl Fn(Connection) -> F) -> Result<T, ClientError>
where
    F: Future<Output = Result<T, ClientError>> + Send,
{
    let inner = &client.inner;
    let mut nodes = client.nodes();
    let start = start_at(&inner.host, nodes.len());
    nodes.rotate_left(start);
    nodes.sort_by_key(|node| !inner.pool.is_open(*node, Purpose::Control));
    let mut tried = Vec::new();
    for node in nodes {
        let answer = match client.control_connection(node).await {
            Ok(connection) => ask(connection).await,
            Err(error) => Err(error.into()),
        };
        match answer {
            Err(ClientError::Call(error)) => tried.push(error.to_string()),
            other => return other,
        }
    }
    for address in &inner.config.bootstrap {
        let opening = Opening { host: &inner.host, config: &inner.config, node: NodeId::BOOTSTRAP, address };
        let answer = match open(opening).await {
            Ok(connection) => ask(connection).await,
            Err(error) => {
                tried.push(format!("{}:{}: {}", address.0, address.1, error.cause()));
                continue;
            }
        };
        match answer {
            Err(ClientError::Call(error)) => tried.push(error.to_string()),
            other => return other,
        }
    }
    Err(ClientError::Unreachable { tried: tried.join("; ") })
}

async fn ask_metadata(connection: &Connection, request: &MetadataRequest) -> Result<Snapshot, CallError> {
    let version = connection.choose(MetadataRequest::KEY, metadata::VERSIONS)?;
    let response = connection.call(version, request, limits::LOOKUP_TIMEOUT).await?;
    Snapshot::of(response, connection.node())
}

/// One Metadata exchange, merged into the cache.
async fn fetch(client: &Client, topics: &[String]) -> Result<Vec<Arc<TopicMetadata>>, ClientError> {
    let mut found = Vec::new();
    // Without topics it is still asked once, for the brokers.
    let chunks = topics.chunks(limits::MAX_TOPICS_PER_LOOKUP);
    let chunks = chunks.chain(topics.is_empty().then_some(topics));
    for chunk in chunks {
        let snapshot = ask_any(client, |connection| async move {
            let request = metadata::request(chunk.iter().map(String::as_str));
            let snapshot = ask_metadata(&connection, &request).await?;
            same_cluster(client, &connection, snapshot)
        })
        .await?;
        found.extend(client.inner.state().metadata.merge(snapshot));
    }
    Ok(found)
}

fn same_cluster(
    client: &Client,
    connection: &Connection,
    snapshot: Snapshot,
) -> Result<Snapshot, ClientError> {
    match &snapshot.cluster_id {
        Some(id) if *id != client.inner.cluster_id => Err(ClientError::OtherCluster {
            node: connection.node().to_string(),
            was: client.inner.cluster_id.clone(),
            is: id.clone(),
        }),
        _ => Ok(snapshot),
    }
}

pub(super) async fn topics(client: &Client, names: &[&str]) -> Result<Vec<Arc<TopicMetadata>>, ClientError> {
    let wanted: BTreeSet<String> = names.iter().map(|&name| name.to_owned()).collect();
    let wanted: Vec<String> = wanted.into_iter().collect();
    let found = fetch(client, &wanted).await?;
    let entry = |&name: &&str| {
        let found = found.iter().find(|topic| &*topic.name == name).cloned();
        found.ok_or_else(|| CallError::Malformed {
            api: "Metadata",
            node: NodeId::BOOTSTRAP,
            reason: format!("no entry for topic {name}").into(),
        })
    };
    Ok(names.iter().map(entry).collect::<Result<_, _>>()?)
}

/// Not kept: what a client knows of topics is of those that it works with.
pub(super) async fn all_topics(client: &Client) -> Result<Vec<TopicMetadata>, ClientError> {
    let snapshot = ask_any(client, |connection| async move {
        let snapshot = ask_metadata(&connection, &metadata::request_all()).await?;
        same_cluster(client, &connection, snapshot)
    });
    Ok(snapshot.await?.topics)
}

pub(super) async fn refresh(client: &Client, topics: &[&str]) -> Result<(), ClientError> {
    let inner = &client.inner;
    let asked = inner.host.now();
    inner.state().wanted.extend(topics.iter().map(|&topic| topic.to_owned()));
    let mut newest = inner.refreshing.lock().await;
    // Another caller's refresh began after we asked, so it knew our topics and its answer is fresh enough.
    if newest.is_some_and(|began| began > asked) {
        return Ok(());
    }
    if let Some(began) = *newest {
        let since = inner.host.now().saturating_duration_since(began);
        inner.host.sleep(inner.host.jitter(inner.config.retry_backoff).saturating_sub(since)).await;
    }
    let names: Vec<String> = {
        let mut state = inner.state();
        let mut names = std::mem::take(&mut state.wanted);
        names.extend(state.metadata.topic_names().iter().map(|name| name.to_string()));
        names.into_iter().collect()
    };
    let began = inner.host.now();
    fetch(client, &names).await?;
    *newest = Some(began);
    Ok(())
}

pub(super) async fn transaction_version(client: &Client) -> Result<TransactionVersion, ClientError> {
    let inner = &client.inner;
    let fresh = |features: &Features, now: Instant| {
        now.saturating_duration_since(features.learned) <= limits::FEATURES_MAX_AGE
    };
    let known = inner.state().features;
    if let Some(features) = known.filter(|features| fresh(features, inner.host.now())) {
        return Ok(features.version);
    }
    let versions = ask_any(client, |connection| async move {
        let node = connection.node();
        ask_versions(&connection, &inner.config).await.map_err(|error| {
            ClientError::Call(CallError::NotSent { api: "ApiVersions", node, cause: error.cause() })
        })
    })
    .await?;
    inner.learn(&versions);
    Ok(inner.state().features.map_or_else(|| versions.transaction_version(), |features| features.version))
}

pub(super) async fn coordinator(
    client: &Client,
    kind: CoordinatorKind,
    key: &str,
) -> Result<Connection, ClientError> {
    let cached = client.inner.state().coordinators.get(&(kind, key.to_owned())).copied();
    let node = match cached {
        Some(node) => node,
        None => find_coordinator(client, kind, key).await?,
    };
    client.control_connection(node).await.map_err(|error| {
        client.forget_coordinator(kind, key);
        error.into()
    })
}

async fn find_coordinator(client: &Client, kind: CoordinatorKind, key: &str) -> Result<NodeId, ClientError> {
    let key_type = match kind {
        CoordinatorKind::Group => 0,
        CoordinatorKind::Transaction => 1,
    };
    let request = FindCoordinatorRequest::default()
        .with_key_type(key_type)
        .with_coordinator_keys(vec![wire::text(key)]);
    let request = &request;
    let (node, response) = ask_any(client, |connection| async move {
        let version = connection.choose(FindCoordinatorRequest::KEY, FIND_COORDINATOR)?;
        let response = connection.call(version, request, limits::LOOKUP_TIMEOUT).await?;
        Ok((connection.node(), response))
    })
    .await?;
    let found =
        response.coordinators.into_iter().find(|found| found.key.as_str() == key).ok_or_else(|| {
            CallError::Malformed {
                api: "FindCoordinator",
                node,
                reason: format!("no entry for {key}").into(),
            }
        })?;
    let code = KafkaCode(found.error_code);
    if code != KafkaCode::NONE {
        return Err(ClientError::broker(RequestKind::FindCoordinator, key, code));
    }
    let node = NodeId(found.node_id.0);
    let mut state = client.inner.state();
    if let Ok(port) = u16::try_from(found.port) {
        state.metadata.learn_node(node, (found.host.to_string(), port));
    }
    state.coordinators.insert((kind, key.to_owned()), node);
    Ok(node)
}
