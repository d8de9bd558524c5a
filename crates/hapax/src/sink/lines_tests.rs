use super::*;
use crate::batch::{Headers, Origin, RecordRef};
use hapax_commit::{Naming, ShardId, SplitId};
use std::{collections::BTreeMap, time::Duration};

/// A path that no other test uses.
fn path(host: &Host) -> PathBuf {
    std::env::temp_dir().join(format!("hapax-lines-sink-{:032x}", host.random_u128()))
}

fn cx(host: &Host, shard: u32) -> WriterContext {
    WriterContext {
        host: host.clone(),
        clusters: Clusters::new(host.clone(), &BTreeMap::new()),
        job: Name::new("orders").unwrap(),
        shard: ShardId(shard),
        identities: None,
        journal: None,
        naming: Naming::Rotating,
        first: Epoch(1),
        carries: false,
        transaction_timeout: Duration::from_secs(60),
    }
}

fn batch(values: &[Option<&str>]) -> Batch {
    let origin =
        Origin { split: SplitId("s/t/0".into()), topic: "t".into(), partition: 0, partitions: Some(1) };
    let mut builder = Batch::builder(Arc::new(origin));
    for (offset, value) in (7..).zip(values) {
        let value = value.map(str::as_bytes);
        let headers = Headers::default();
        builder.push(RecordRef {
            key: None,
            value,
            headers,
            timestamp: 0,
            offset,
            topic: None,
            partition: None,
        });
    }
    builder.build()
}

#[tokio::test]
async fn what_is_prepared_is_in_the_file() {
    let host = Host::real();
    let path = path(&host);
    let sink = LinesSink::file("out", path.clone(), true);
    let mut writers = [sink.writer(cx(&host, 0)).await.unwrap(), sink.writer(cx(&host, 1)).await.unwrap()];
    writers[0].write(&batch(&[Some("a"), None])).await.unwrap();
    writers[1].write(&batch(&[Some("b")])).await.unwrap();
    assert_eq!(writers[0].prepare(Epoch(1)).await.unwrap().records, 2);
    assert_eq!(host.files().read_to_string(&path).unwrap(), "a\nnull\n");
    assert_eq!(writers[1].prepare(Epoch(1)).await.unwrap().records, 1);
    assert_eq!(writers[1].prepare(Epoch(2)).await.unwrap().records, 0);
    assert_eq!(host.files().read_to_string(&path).unwrap(), "a\nnull\nb\n");
    host.files().remove(&path).unwrap();
}

#[tokio::test]
async fn a_line_that_was_cut_by_a_kill_is_ended_first() {
    let host = Host::real();
    let path = path(&host);
    host.files().create_new(&path).unwrap().write_all(b"whole\nhal").unwrap();
    let mut writer = LinesSink::file("out", path.clone(), true).writer(cx(&host, 0)).await.unwrap();
    writer.write(&batch(&[Some("half")])).await.unwrap();
    writer.prepare(Epoch(1)).await.unwrap();
    assert_eq!(host.files().read_to_string(&path).unwrap(), "whole\nhal\nhalf\n");
    host.files().remove(&path).unwrap();
}

#[tokio::test]
async fn a_value_with_a_line_break_is_refused_or_dropped_as_promised() {
    let host = Host::real();
    let path = path(&host);
    let records = batch(&[Some("a"), Some("b\nc"), Some("d")]);
    let mut durable = LinesSink::file("out", path.clone(), true).writer(cx(&host, 0)).await.unwrap();
    let error = durable.write(&records).await.unwrap_err().to_string();
    assert!(error.starts_with("sink out: the record at t-0 offset 8 has a line break"), "{error}");
    drop(durable);
    host.files().remove(&path).unwrap();

    let mut loose = LinesSink::file("out", path.clone(), false).writer(cx(&host, 0)).await.unwrap();
    loose.write(&records).await.unwrap();
    assert_eq!((loose.prepare(Epoch(1)).await.unwrap().records, loose.dropped()), (2, 1));
    assert_eq!(host.files().read_to_string(&path).unwrap(), "a\nd\n");
    host.files().remove(&path).unwrap();
}

#[tokio::test]
async fn a_full_disk_is_an_error_where_something_is_promised_and_a_count_where_not() {
    let host = Host::real();
    let (path, full) = (path(&host), PathBuf::from("/dev/full"));
    let sink = LinesSink::file("out", path.clone(), true);
    *sink.shared.0.lock().unwrap() = Some(host.files().append(&full).unwrap());
    let mut durable = sink.writer(cx(&host, 0)).await.unwrap();
    durable.write(&batch(&[Some("a")])).await.unwrap();
    let error = durable.prepare(Epoch(1)).await.unwrap_err();
    assert_eq!(error.to_string(), format!("sink out: writing {}", path.display()));
    assert!(durable.write(&batch(&[Some("b")])).await.is_ok());
    assert!(durable.prepare(Epoch(1)).await.is_err(), "a first failure is sticky");

    let mut loose = LinesSink::file("out", full, false).writer(cx(&host, 0)).await.unwrap();
    loose.write(&batch(&[Some("a")])).await.unwrap();
    assert_eq!((loose.prepare(Epoch(1)).await.unwrap().records, loose.dropped()), (0, 1));
}

#[tokio::test]
async fn what_keeps_nothing_is_refused_where_something_is_promised() {
    let host = Host::real();
    let refused = async |path: &str, durable: bool| {
        let sink = LinesSink::file("out", PathBuf::from(path), durable);
        let error = sink.writer(cx(&host, 0)).await.err().unwrap_or_else(|| panic!("{path} is legal"));
        assert!(matches!(&error, SinkError::Configuration { .. }), "{error}");
        error.to_string()
    };
    let error = refused("/dev/null", true).await;
    assert!(error.starts_with("sink out: /dev/null is a device and not a regular file"), "{error}");
    for durable in [true, false] {
        assert_eq!(refused("/tmp", durable).await, "sink out: /tmp is a folder; name a file in it");
    }
}

#[tokio::test]
async fn a_device_takes_lines_where_nothing_is_promised() {
    let host = Host::real();
    let sink = LinesSink::file("out", PathBuf::from("/dev/null"), false);
    let mut writer = sink.writer(cx(&host, 0)).await.unwrap();
    writer.write(&batch(&[Some("a")])).await.unwrap();
    assert_eq!((writer.prepare(Epoch(1)).await.unwrap().records, writer.dropped()), (1, 0));
}
