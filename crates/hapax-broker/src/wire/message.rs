//! The requests that this broker takes, and their answers. One list: what is not in it is not advertised.
//!
//! OffsetCommit and OffsetFetch end one version below Apache Kafka 4.4, which names topics by their ids there: the
//! messages of the crate do not have that version. InitProducerId 6 is understood although it is not in the list.

use super::two_phase;
use bytes::{Bytes, BytesMut};
use kafka_protocol::{
    messages::{self, ApiKey},
    protocol::{Decodable, Encodable, VersionRange},
};

/// The highest version of an API that is taken and advertised. `unstable` is Kafka's `unstable.api.versions.enable`.
pub(crate) fn highest(key: ApiKey, range: &VersionRange, unstable: bool) -> i16 {
    range.max + i16::from(unstable && key == ApiKey::InitProducerId)
}

macro_rules! messages {
    ($($name:ident($request:ident, $response:ident) $lowest:literal..=$highest:literal)*) => {
        /// A decoded request.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Request {
            $(#[doc = concat!("`", stringify!($request), "`.")] $name(messages::$request),)*
        }

        /// An answer that is not encoded yet.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Response {
            $(#[doc = concat!("`", stringify!($response), "`.")] $name(messages::$response),)*
        }

        /// What is advertised: every key that this broker knows, with its versions.
        pub const ADVERTISED: &[(ApiKey, VersionRange)] =
            &[$((ApiKey::$name, VersionRange { min: $lowest, max: $highest })),*];

        impl Request {
            /// The key of the request.
            pub fn key(&self) -> ApiKey {
                match self {
                    $(Self::$name(_) => ApiKey::$name,)*
                }
            }

            /// Decodes a request's body; `None` for a key that is not advertised.
            ///
            /// # Errors
            /// The bytes are not what the version defines, or more than that.
            pub fn decode(key: ApiKey, version: i16, body: &mut Bytes) -> Option<Result<Self, Malformed>> {
                if (key, version) == (ApiKey::InitProducerId, two_phase::VERSION) {
                    return Some(two_phase::decode(body).map(Self::InitProducerId));
                }
                match key {
                    $(ApiKey::$name => Some(
                        messages::$request::decode(body, version)
                            .map(Self::$name)
                            .map_err(|error| Malformed(error.to_string())),
                    ),)*
                    _ => None,
                }
            }

            /// Encodes a request's body, as a client does.
            ///
            /// # Errors
            /// A field that the version cannot hold is set.
            pub fn encode(&self, version: i16, into: &mut BytesMut) -> Result<(), Malformed> {
                if let (Self::InitProducerId(request), two_phase::VERSION) = (self, version) {
                    return two_phase::encode(request, into);
                }
                match self {
                    $(Self::$name(message) => message.encode(into, version).map_err(|error| Malformed(error.to_string())),)*
                }
            }
        }

        impl Response {
            /// The key of the request that this answers.
            pub fn key(&self) -> ApiKey {
                match self {
                    $(Self::$name(_) => ApiKey::$name,)*
                }
            }

            /// Encodes an answer's body.
            ///
            /// # Errors
            /// A field that the version cannot hold is set.
            pub fn encode(&self, version: i16, into: &mut BytesMut) -> Result<(), Malformed> {
                match self {
                    $(Self::$name(message) => message.encode(into, version).map_err(|error| Malformed(error.to_string())),)*
                }
            }

            /// Decodes an answer's body, as a client does; `None` for a key that is not advertised.
            ///
            /// # Errors
            /// The bytes are not what the version defines.
            pub fn decode(key: ApiKey, version: i16, body: &mut Bytes) -> Option<Result<Self, Malformed>> {
                match key {
                    $(ApiKey::$name => Some(
                        messages::$response::decode(body, version)
                            .map(Self::$name)
                            .map_err(|error| Malformed(error.to_string())),
                    ),)*
                    _ => None,
                }
            }
        }

        $(
            impl From<messages::$request> for Request {
                fn from(message: messages::$request) -> Self {
                    Self::$name(message)
                }
            }

            impl From<messages::$response> for Response {
                fn from(message: messages::$response) -> Self {
                    Self::$name(message)
                }
            }
        )*
    };
}

/// Bytes or fields that the version of a message does not define.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

messages! {
    Produce(ProduceRequest, ProduceResponse) 3..=13
    Fetch(FetchRequest, FetchResponse) 4..=18
    ListOffsets(ListOffsetsRequest, ListOffsetsResponse) 1..=10
    Metadata(MetadataRequest, MetadataResponse) 0..=13
    OffsetCommit(OffsetCommitRequest, OffsetCommitResponse) 2..=9
    OffsetFetch(OffsetFetchRequest, OffsetFetchResponse) 1..=9
    FindCoordinator(FindCoordinatorRequest, FindCoordinatorResponse) 0..=6
    JoinGroup(JoinGroupRequest, JoinGroupResponse) 0..=9
    Heartbeat(HeartbeatRequest, HeartbeatResponse) 0..=4
    LeaveGroup(LeaveGroupRequest, LeaveGroupResponse) 0..=5
    SyncGroup(SyncGroupRequest, SyncGroupResponse) 0..=5
    DescribeGroups(DescribeGroupsRequest, DescribeGroupsResponse) 0..=6
    ListGroups(ListGroupsRequest, ListGroupsResponse) 0..=5
    ApiVersions(ApiVersionsRequest, ApiVersionsResponse) 0..=4
    CreateTopics(CreateTopicsRequest, CreateTopicsResponse) 2..=7
    DeleteTopics(DeleteTopicsRequest, DeleteTopicsResponse) 1..=6
    DeleteRecords(DeleteRecordsRequest, DeleteRecordsResponse) 0..=2
    InitProducerId(InitProducerIdRequest, InitProducerIdResponse) 0..=5
    OffsetForLeaderEpoch(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse) 2..=4
    AddPartitionsToTxn(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse) 0..=5
    AddOffsetsToTxn(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse) 0..=4
    EndTxn(EndTxnRequest, EndTxnResponse) 0..=5
    WriteTxnMarkers(WriteTxnMarkersRequest, WriteTxnMarkersResponse) 1..=1
    TxnOffsetCommit(TxnOffsetCommitRequest, TxnOffsetCommitResponse) 0..=5
    DescribeConfigs(DescribeConfigsRequest, DescribeConfigsResponse) 1..=4
    CreatePartitions(CreatePartitionsRequest, CreatePartitionsResponse) 0..=3
    DeleteGroups(DeleteGroupsRequest, DeleteGroupsResponse) 0..=2
    OffsetDelete(OffsetDeleteRequest, OffsetDeleteResponse) 0..=0
    DescribeCluster(DescribeClusterRequest, DescribeClusterResponse) 0..=2
    DescribeProducers(DescribeProducersRequest, DescribeProducersResponse) 0..=0
    DescribeTransactions(DescribeTransactionsRequest, DescribeTransactionsResponse) 0..=0
    ListTransactions(ListTransactionsRequest, ListTransactionsResponse) 0..=2
}
