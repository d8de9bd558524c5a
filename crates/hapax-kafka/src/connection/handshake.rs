//! Opening a connection: socket, ApiVersions, the floor of what a broker must offer.

use super::{BrokerVersions, Connection, Owner, Shared, exchange::Exchange, io};
use crate::{
    ClientConfig, KafkaCode, NodeId,
    error::{CallError, Cause},
    wire::{self, Request},
};
use bytes::Bytes;
use hapax_host::Host;
use kafka_protocol::messages::{ApiVersionsRequest, DescribeTransactionsRequest};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::sync::Notify;

/// Flexible and offered by every broker from Kafka 2.4; finalized features ride in its tagged fields.
const API_VERSIONS: i16 = 3;

/// What every broker from Kafka 3.0 offers and no older one does.
const FLOOR: (i16, &str) = (DescribeTransactionsRequest::KEY, "DescribeTransactions");

/// Where to connect to.
pub(crate) struct Opening<'a> {
    pub(crate) host: &'a Host,
    pub(crate) config: &'a ClientConfig,
    pub(crate) node: NodeId,
    pub(crate) address: &'a (String, u16),
}

/// Why a connection could not be opened.
#[derive(Clone, Debug)]
pub(crate) enum OpenError {
    Failed(Cause),
    TooOld { lacks: &'static str },
}

impl OpenError {
    pub(crate) fn cause(&self) -> Cause {
        match self {
            Self::Failed(cause) => cause.clone(),
            Self::TooOld { lacks } => Cause::Connect(
                format!("the broker does not offer {lacks}: Kafka 3.0 or later is needed").into(),
            ),
        }
    }
}

/// Connects and learns what the broker offers, within the connect time-out.
pub(crate) async fn open(opening: Opening<'_>) -> Result<Connection, OpenError> {
    let limit = opening.config.connect_timeout;
    match opening.host.timeout(limit, connect(&opening)).await {
        Some(result) => result,
        None => Err(OpenError::Failed(Cause::Connect(format!("no connection within {limit:?}").into()))),
    }
}

async fn connect(opening: &Opening<'_>) -> Result<Connection, OpenError> {
    let Opening { host, config, node, address } = opening;
    let stream = host
        .net()
        .connect(&address.0, address.1)
        .await
        .map_err(|error| OpenError::Failed(Cause::Connect(error.to_string().into())))?;
    let shared = Arc::new(Shared {
        host: (*host).clone(),
        node: *node,
        client_id: config.client_id.clone(),
        idle_timeout: config.idle_timeout,
        versions: OnceLock::new(),
        exchange: Mutex::new(Exchange::new(*node, host.now())),
        wake_writer: Notify::new(),
        wake_watch: Notify::new(),
        wake_close: Notify::new(),
    });
    let connection = Connection { owner: Arc::new(Owner(Arc::clone(&shared))) };
    host.spawn(io::run(Arc::clone(&shared), stream));
    let versions = ask_versions(&connection, config).await?;
    if versions.range(FLOOR.0).is_none() {
        return Err(OpenError::TooOld { lacks: FLOOR.1 });
    }
    shared.versions.get_or_init(|| versions);
    Ok(connection)
}

/// The ApiVersions exchange; also used later to see finalized features that changed meanwhile.
pub(crate) async fn ask_versions(
    connection: &Connection,
    config: &ClientConfig,
) -> Result<BrokerVersions, OpenError> {
    let request = ApiVersionsRequest::default()
        .with_client_software_name(wire::text("hapax"))
        .with_client_software_version(wire::text(env!("CARGO_PKG_VERSION")));
    let failed = |why: String| OpenError::Failed(Cause::Connect(why.into()));
    let body = request.body(API_VERSIONS).map_err(|why| failed(why.to_string()))?;
    let answer =
        connection.send_raw(ApiVersionsRequest::KEY, API_VERSIONS, vec![body], config.connect_timeout);
    let body = answer.await.map_err(|error| failed(in_words(&error)))?;
    // A broker that does not know the version answers in version 0 and with this code.
    if leading_code(&body) == Some(KafkaCode::UNSUPPORTED_VERSION) {
        return Err(OpenError::TooOld { lacks: "ApiVersions 3" });
    }
    let response = wire::decode_body::<ApiVersionsRequest>(API_VERSIONS, body)
        .map_err(|why| failed(format!("ApiVersions: {why}")))?;
    match KafkaCode(response.error_code) {
        KafkaCode::NONE => Ok(BrokerVersions::of(&response)),
        code => Err(failed(format!("ApiVersions: the broker answered {code}"))),
    }
}

fn leading_code(body: &Bytes) -> Option<KafkaCode> {
    body.first_chunk::<2>().map(|code| KafkaCode(i16::from_be_bytes(*code)))
}

fn in_words(error: &CallError) -> String {
    match error {
        CallError::NotSent { cause, .. } | CallError::Unknown { cause, .. } => cause.to_string(),
        other => other.to_string(),
    }
}
