//! One side of an audit: where its records are, and reading them to the end that they have when it is opened.
//!
//! A topic is read `read_committed`, from its first record to the last stable offset; a file to its length.

use crate::{audit::Place, topic};
use hapax::{
    Code, Host, JobError, RecordRef,
    batch::{Headers, Origin},
    source::irregular,
};
use hapax_commit::SplitId;
use hapax_host::{Deadline, OpenFile};
use hapax_kafka::{
    Client, ClientConfig, ClientError, Isolation,
    admin::{OffsetSpec, list_offsets},
    fetch::{Fetcher, FetcherConfig, TopicPartition},
};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

/// A reader that gets nothing for so long gives up: the ends were fixed before, so there is more to come.
const STALL: Duration = Duration::from_secs(60);

/// How long a cluster is asked for its topics and offsets.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of the longest line.
const LINE: u64 = 16 * 1024 * 1024;

/// Where the records of a side are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Topics of one cluster.
    Topics {
        /// `host:port`, with commas.
        brokers: String,
        /// The topics.
        topics: Vec<String>,
    },
    /// A file of lines.
    File(PathBuf),
}

impl FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("kafka://") else {
            return match text.strip_prefix("file://").unwrap_or(text) {
                "" => Err("a side is kafka://host:port/topic or the path of a file".to_owned()),
                path => Ok(Self::File(PathBuf::from(path))),
            };
        };
        let wrong = || format!("{text:?} is not of the form kafka://host:port,host:port/topic,topic");
        let (brokers, topics) = rest.split_once('/').ok_or_else(wrong)?;
        let topics: Vec<String> = topics.split(',').map(str::to_owned).collect();
        if brokers.is_empty() {
            return Err(wrong());
        }
        if let Some(why) = topics.iter().find_map(|name| topic::check(name).err()) {
            return Err(format!("{}: {why}", wrong()));
        }
        Ok(Self::Topics { brokers: brokers.to_owned(), topics })
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topics { brokers, topics } => write!(f, "kafka://{brokers}/{}", topics.join(",")),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Names of a side's partitions (or of its file), by [`Place::partition`].
#[derive(Clone, Debug, Default)]
pub(super) struct Names(Vec<Arc<Origin>>);

impl Names {
    /// A place as a person finds it.
    pub(super) fn of(&self, place: Place) -> String {
        match self.0.get(place.partition as usize) {
            Some(origin) => self::place(origin, place.offset),
            None => format!("partition {} offset {}", place.partition, place.offset),
        }
    }
}

/// An offset of a partition, or a byte of a file.
pub(super) fn place(origin: &Origin, offset: u64) -> String {
    match origin.partitions {
        Some(_) => format!("{}-{} offset {offset}", origin.topic, origin.partition),
        None => format!("{} byte {offset}", origin.topic),
    }
}

/// Takes records as they are read.
pub(super) trait Take {
    /// One record.
    fn take(&mut self, origin: &Origin, place: Place, record: RecordRef<'_>) -> Result<(), JobError>;
}

/// A side whose end is fixed.
pub(super) enum Opened<'a> {
    /// Topics with their last stable offsets.
    Topics(Topics<'a>),
    /// A file with its length.
    File(Lines<'a>),
}

/// Looks where a side begins and ends.
///
/// # Errors
/// Kafka or the file cannot be reached, or there is no such topic.
pub(super) async fn open<'a>(host: &Host, side: &'a Side) -> Result<Opened<'a>, JobError> {
    match side {
        Side::Topics { brokers, topics } => {
            Topics::open(host, side, brokers, topics).await.map(Opened::Topics)
        }
        Side::File(path) => Lines::open(host, path).map(Opened::File),
    }
}

impl Opened<'_> {
    /// Reads it to that end.
    ///
    /// # Errors
    /// Kafka or the file cannot be read, or `take` refuses a record.
    pub(super) async fn read(self, host: &Host, take: &mut (impl Take + Send)) -> Result<Names, JobError> {
        match self {
            Self::Topics(topics) => topics.read(host, take).await,
            Self::File(lines) => lines.read(take),
        }
    }
}

fn kafka(side: &Side, what: &str, error: ClientError) -> JobError {
    let code = if error.is_retriable() { Code::Unreachable } else { Code::Refused };
    JobError::Kafka { code, attempted: format!("verify {side}: {what}"), source: Box::new(error) }
}

/// One partition of a side.
struct Partition {
    number: u32,
    origin: Arc<Origin>,
    from: i64,
    end: i64,
}

/// Topics with their ends.
pub(super) struct Topics<'a> {
    side: &'a Side,
    client: Client,
    /// Those that are not at their end.
    left: HashMap<TopicPartition, Partition>,
    names: Names,
}

impl<'a> Topics<'a> {
    async fn open(host: &Host, side: &'a Side, brokers: &str, topics: &[String]) -> Result<Self, JobError> {
        let bootstrap = ClientConfig::parse_bootstrap(brokers)
            .map_err(|error| kafka(side, "reading the address", error))?;
        let client = Client::connect(host.clone(), ClientConfig::new(bootstrap))
            .await
            .map_err(|error| kafka(side, "connecting", error))?;
        let partitions = partitions(side, &client, topics).await?;
        let wanted: Vec<(&str, i32)> =
            partitions.iter().map(|(topic, partition, _)| (topic.as_str(), *partition)).collect();
        let first = offsets(host, side, &client, &wanted, OffsetSpec::Earliest).await?;
        let last = offsets(host, side, &client, &wanted, OffsetSpec::Latest).await?;
        let (mut left, mut names) = (HashMap::new(), Names::default());
        for (number, (topic, partition, count)) in (0..).zip(partitions) {
            let key = (topic.clone(), partition);
            let (from, end) = (first.get(&key).copied().unwrap_or(0), last.get(&key).copied().unwrap_or(0));
            let split = SplitId(format!("{topic}/{partition}"));
            let topic: Arc<str> = topic.into();
            let origin = Arc::new(Origin { split, topic: topic.clone(), partition, partitions: Some(count) });
            names.0.push(origin.clone());
            if from < end {
                let tp = TopicPartition { topic, partition };
                left.insert(tp, Partition { number, origin, from, end });
            }
        }
        Ok(Self { side, client, left, names })
    }

    async fn read(mut self, host: &Host, take: &mut (impl Take + Send)) -> Result<Names, JobError> {
        let config = FetcherConfig { isolation: Isolation::ReadCommitted, ..FetcherConfig::default() };
        let mut fetcher = Fetcher::start(self.client.clone(), config);
        for (tp, partition) in &self.left {
            fetcher.assign(tp.clone(), None, partition.from, None);
        }
        while !self.left.is_empty() {
            let fetched = host.timeout(STALL, fetcher.next()).await.ok_or_else(|| self.stalled())?;
            let fetched = fetched.map_err(|error| JobError::Run {
                code: Code::Read,
                message: format!("verify {}: {error}; run it again", self.side),
            })?;
            let Some(partition) = self.left.get(&fetched.tp) else { continue };
            for view in fetched.records.views().iter().filter(|view| view.offset < partition.end) {
                let headers = fetched.records.encoded_headers(view);
                let record = RecordRef {
                    key: fetched.records.key(view),
                    value: fetched.records.value(view),
                    headers: Headers { encoded: headers.as_bytes(), count: headers.count() },
                    timestamp: view.timestamp,
                    offset: view.offset,
                    topic: None,
                    partition: None,
                };
                let offset = u64::try_from(view.offset).unwrap_or(0);
                take.take(&partition.origin, Place { partition: partition.number, offset }, record)?;
            }
            if fetched.next_offset >= partition.end {
                fetcher.unassign(&fetched.tp);
                self.left.remove(&fetched.tp);
            }
        }
        Ok(self.names)
    }

    fn stalled(&self) -> JobError {
        let waiting: BTreeMap<String, i64> =
            self.left.iter().map(|(tp, partition)| (tp.to_string(), partition.end)).collect();
        let waiting: Vec<String> = waiting.iter().map(|(tp, end)| format!("{tp} up to {end}")).collect();
        JobError::Run {
            code: Code::Read,
            message: format!(
                "verify {}: nothing more came for {STALL:?}, and there is more to read: {}; are all brokers up?",
                self.side,
                waiting.join(", ")
            ),
        }
    }
}

/// Topic, number, and number of partitions of the topic, for all partitions of all topics.
async fn partitions(
    side: &Side,
    client: &Client,
    topics: &[String],
) -> Result<Vec<(String, i32, i32)>, JobError> {
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    let found = client.topics(&names).await.map_err(|error| kafka(side, "looking the topics up", error))?;
    let mut partitions = Vec::new();
    for topic in found {
        if let Some(code) = topic.error {
            return Err(JobError::Configuration {
                code: Code::UnknownTopic,
                message: format!("verify {side}: topic {}: {code}; correct the name", topic.name),
            });
        }
        let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        partitions.extend((0..count).map(|partition| (topic.name.to_string(), partition, count)));
    }
    Ok(partitions)
}

async fn offsets(
    host: &Host,
    side: &Side,
    client: &Client,
    wanted: &[(&str, i32)],
    spec: OffsetSpec,
) -> Result<HashMap<(String, i32), i64>, JobError> {
    let deadline = Deadline::after(host.now(), Some(PATIENCE));
    let listed = list_offsets(client, wanted, spec, Isolation::ReadCommitted, deadline)
        .await
        .map_err(|error| kafka(side, "listing offsets", error))?;
    Ok(listed
        .into_iter()
        .filter_map(|found| Some(((found.topic.to_string(), found.partition), found.offset?)))
        .collect())
}

/// A file with its length.
pub(super) struct Lines<'a> {
    path: &'a Path,
    file: Box<dyn OpenFile>,
    end: u64,
}

impl<'a> Lines<'a> {
    fn open(host: &Host, path: &'a Path) -> Result<Self, JobError> {
        let failed = |error: io::Error| unusable(path, format!("cannot be read: {error}"));
        if let Some(what) = irregular(path).map_err(failed)? {
            return Err(unusable(
                path,
                format!(
                    "it is {what} and not a regular file, so where it ends is not known before it is read; write it to \
                     a file first"
                ),
            ));
        }
        let opened = host.files().open(path).and_then(|file| {
            let end = file.identity()?.length;
            Ok(Self { path, file, end })
        });
        opened.map_err(failed)
    }

    fn read(self, take: &mut impl Take) -> Result<Names, JobError> {
        let Self { path, file, end } = self;
        let mut lines = BufReader::new(file);
        let topic: Arc<str> = path.display().to_string().into();
        let split = SplitId(topic.to_string());
        let origin = Arc::new(Origin { split, topic, partition: 0, partitions: None });
        let (mut offset, mut line) = (0, Vec::new());
        while offset < end {
            line.clear();
            let mut bounded = io::Read::take(&mut lines, LINE.min(end - offset));
            let length = bounded
                .read_until(b'\n', &mut line)
                .map_err(|error| unusable(path, format!("cannot be read: {error}")))?
                as u64;
            if length == 0 {
                return Err(unusable(
                    path,
                    format!("ends at byte {offset} and had {end}: it was cut meanwhile"),
                ));
            }
            if length == LINE && !line.ends_with(b"\n") {
                return Err(unusable(path, format!("no line break within {LINE} bytes from byte {offset}")));
            }
            let value = line.strip_suffix(b"\n").unwrap_or(&line);
            let value = value.strip_suffix(b"\r").unwrap_or(value);
            if !value.trim_ascii().is_empty() {
                take.take(&origin, Place { partition: 0, offset }, line_record(value, offset))?;
            }
            offset += length;
        }
        Ok(Names(vec![origin]))
    }
}

fn line_record(value: &[u8], offset: u64) -> RecordRef<'_> {
    RecordRef {
        key: None,
        value: Some(value),
        headers: Headers::default(),
        timestamp: 0,
        offset: i64::try_from(offset).unwrap_or(i64::MAX),
        topic: None,
        partition: None,
    }
}

fn unusable(path: &Path, what: String) -> JobError {
    JobError::Configuration { code: Code::Usage, message: format!("verify {}: {what}", path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_topics_or_a_file() {
        let topics = |brokers: &str, topics: &[&str]| Side::Topics {
            brokers: brokers.into(),
            topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
        };
        assert_eq!("kafka://a:1,b:2/orders".parse(), Ok(topics("a:1,b:2", &["orders"])));
        assert_eq!("kafka://a:1/x,y.z".parse(), Ok(topics("a:1", &["x", "y.z"])));
        assert_eq!("orders.ndjson".parse(), Ok(Side::File("orders.ndjson".into())));
        assert_eq!("file:///tmp/a".parse(), Ok(Side::File("/tmp/a".into())));
        for text in ["kafka://a:1", "kafka:///t", "kafka://a:1/", "kafka://a:1/t,", "kafka://a:1/t/u"] {
            assert!(
                text.parse::<Side>().unwrap_err().contains("kafka://host:port,host:port/topic,topic"),
                "{text}"
            );
        }
        assert!("".parse::<Side>().is_err());
    }

    #[derive(Default)]
    struct Values(Vec<(u64, String)>);

    impl Take for Values {
        fn take(&mut self, _: &Origin, place: Place, record: RecordRef<'_>) -> Result<(), JobError> {
            self.0.push((place.offset, String::from_utf8(record.value.unwrap().to_vec()).unwrap()));
            Ok(())
        }
    }

    #[test]
    fn a_file_is_read_line_by_line() {
        use std::io::Write;
        let host = Host::real();
        let path = std::env::temp_dir().join(format!("hapax-side-{:032x}", host.random_u128()));
        host.files().create_new(&path).unwrap().write_all(b"1\r\n\n22\n3").unwrap();
        let mut values = Values::default();
        let names = Lines::open(&host, &path).unwrap().read(&mut values).unwrap();
        host.files().remove(&path).unwrap();
        assert_eq!(values.0, [(0, "1".into()), (4, "22".into()), (7, "3".into())]);
        assert_eq!(names.of(Place { partition: 0, offset: 4 }), format!("{} byte 4", path.display()));
    }

    #[test]
    fn a_missing_file_is_wrong_usage() {
        let error = Lines::open(&Host::real(), Path::new("/nowhere")).err().expect("there is no such file");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().starts_with("E0200: verify /nowhere: cannot be read: "), "{error}");
    }
}
