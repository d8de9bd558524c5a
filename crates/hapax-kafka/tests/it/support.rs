//! What every test needs: a client on a shared broker, names of its own, one transaction written by hand.

use bytes::{BufMut, Bytes, BytesMut};
use hapax_commit::{Identity, TransactionVersion};
use hapax_host::{Deadline, Host};
use hapax_kafka::{
    Class, Client, ClientConfig, KafkaCode, RequestKind, classify,
    record::{BatchBuilder, Compression, Compressor, RecordRef, Stamp},
    transaction,
    wire::Request,
};
use kafka_protocol::{
    messages::{ProduceRequest, ProduceResponse},
    protocol::Decodable,
};
use std::{
    future::Future,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};
pub(crate) use xtask::{
    judge::{Isolation as Reading, Judge},
    kafka::{Version, shared},
};

/// Runs a test's future on one thread.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A name that no other test uses.
pub(crate) fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn config(bootstrap: &str) -> ClientConfig {
    ClientConfig::new(ClientConfig::parse_bootstrap(bootstrap).unwrap())
}

pub(crate) async fn connect(bootstrap: &str) -> Client {
    Client::connect(Host::real(), config(bootstrap)).await.unwrap()
}

pub(crate) fn soon(client: &Client) -> Deadline {
    Deadline::after(client.host().now(), Some(Duration::from_secs(60)))
}

/// The protocol that a broker of this version runs by default.
pub(crate) fn protocol(version: Version) -> TransactionVersion {
    if version.knows_v2() { TransactionVersion::V2 } else { TransactionVersion::V1 }
}

/// Repeats a look until it shows what is waited for; the deadline is the test's failure.
pub(crate) async fn eventually<T, F>(client: &Client, what: &str, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = soon(client);
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(!deadline.has_passed(client.host().now()), "never seen: {what}");
        client.host().sleep(Duration::from_millis(50)).await;
    }
}

/// One batch of values in one transactional (or plain) Produce request.
pub(crate) struct Batch<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: i32,
    pub(crate) values: &'a [String],
    pub(crate) base_sequence: i32,
}

impl Batch<'_> {
    fn sealed(&self, identity: Identity) -> Bytes {
        let mut builder = BatchBuilder::new();
        for value in self.values {
            let record = RecordRef { value: Some(value.as_bytes()), timestamp: 1, ..RecordRef::default() };
            builder.push(&record).unwrap();
        }
        let sealed = builder.seal(Compression::None, &mut Compressor::new()).unwrap();
        let stamp = Stamp {
            producer_id: identity.producer_id.0,
            producer_epoch: identity.producer_epoch.0,
            base_sequence: self.base_sequence,
            transactional: true,
        };
        sealed.stamp(stamp).to_bytes()
    }

    /// The body of Produce 9 to 12 by hand: transactional id, acks, timeout, one topic, one partition, no tags.
    fn body(&self, transactional_id: &str, identity: Identity) -> Vec<Bytes> {
        let records = self.sealed(identity);
        let mut head = BytesMut::new();
        compact(&mut head, transactional_id);
        head.put_i16(-1);
        head.put_i32(30_000);
        varint(&mut head, 2);
        compact(&mut head, self.topic);
        varint(&mut head, 2);
        head.put_i32(self.partition);
        varint(&mut head, u32::try_from(records.len()).unwrap() + 1);
        vec![head.freeze(), records, Bytes::from_static(&[0, 0, 0])]
    }

    /// Sends the batch to the partition's leader; the code and base offset of the answer.
    pub(crate) async fn produce(
        &self,
        client: &Client,
        transactional_id: &str,
        identity: Identity,
        version: TransactionVersion,
    ) -> (KafkaCode, i64) {
        let topics = client.topics(&[self.topic]).await.unwrap();
        let leader = topics[0].usable().unwrap().partition(self.partition).unwrap().leader.unwrap();
        let connection = client.connection(leader.node).await.unwrap();
        let ours = match version {
            TransactionVersion::V1 => 9..=11,
            TransactionVersion::V2 => 12..=12,
        };
        let version = connection.choose(ProduceRequest::KEY, ours).unwrap();
        let body = self.body(transactional_id, identity);
        let answer = connection.send_raw(ProduceRequest::KEY, version, body, Duration::from_secs(30));
        let response = ProduceResponse::decode(&mut answer.await.unwrap(), version).unwrap();
        let partition = &response.responses[0].partition_responses[0];
        (KafkaCode(partition.error_code), partition.base_offset)
    }
}

fn varint(out: &mut BytesMut, mut value: u32) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn compact(out: &mut BytesMut, text: &str) {
    varint(out, u32::try_from(text.len()).unwrap() + 1);
    out.put_slice(text.as_bytes());
}

/// A transaction that was begun, written and not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    pub(crate) transactional_id: String,
    pub(crate) identity: Identity,
    pub(crate) version: TransactionVersion,
    pub(crate) first_offset: i64,
}

impl Prepared {
    /// Takes an identity and writes `values` to partition 0 of a topic.
    pub(crate) async fn begin(
        client: &Client,
        id: &str,
        timeout: Duration,
        topic: &str,
        values: &[String],
    ) -> Self {
        let timeout = i32::try_from(timeout.as_millis()).unwrap();
        let identity = transaction::init_producer_id(
            client,
            id,
            transaction::Lifetime::Millis(timeout),
            None,
            soon(client),
        )
        .await
        .unwrap();
        Self::write(client, id, identity, topic, values).await
    }

    /// Writes `values` in a transaction of an identity that nothing was written under.
    pub(crate) async fn write(
        client: &Client,
        id: &str,
        identity: Identity,
        topic: &str,
        values: &[String],
    ) -> Self {
        let version = client.transaction_version().await.unwrap();
        if version == TransactionVersion::V1 {
            let partitions: &[(&str, &[i32])] = &[(topic, &[0])];
            transaction::add_partitions(client, id, identity, partitions, soon(client)).await.unwrap();
        }
        let batch = Batch { topic, partition: 0, values, base_sequence: 0 };
        let first_offset = eventually(client, "room for a new transaction", || async {
            match batch.produce(client, id, identity, version).await {
                (KafkaCode::NONE, offset) => Some(offset),
                (code, _) => match classify(RequestKind::Produce, code) {
                    // The markers before are not there yet, or the leader has not taken office yet.
                    Class::Retry | Class::RefreshMetadata => None,
                    class => panic!("produce under {id}: {code} ({class:?})"),
                },
            }
        })
        .await;
        Self { transactional_id: id.to_owned(), identity, version, first_offset }
    }

    pub(crate) async fn end(&self, client: &Client, commit: bool) -> transaction::EndTxnAnswer {
        let Self { transactional_id, identity, version, .. } = self;
        transaction::end_txn(client, transactional_id, *identity, *version, commit, soon(client), || {}).await
    }
}

pub(crate) fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("value-{number}")).collect()
}

/// All values of partition 0 as the judge reads them.
pub(crate) fn judged(bootstrap: &str, topic: &str, reading: Reading) -> Vec<String> {
    let partitions = Judge::shared().read_all(bootstrap, topic, reading).unwrap();
    // Shown only where the test fails.
    partitions.iter().for_each(|partition| println!("{topic}: the judge saw {:?}", partition.bounds));
    partitions.iter().flat_map(|partition| &partition.records).map(|record| record.text()).collect()
}
