use super::*;
use crate::cluster::Clusters;
use hapax_host::Host;
use std::{collections::BTreeMap, io::Write};

/// A file that no other test uses; removed at the end.
struct Temporary {
    host: Host,
    path: PathBuf,
}

impl Temporary {
    fn with(text: &str) -> Self {
        let host = Host::real();
        let path = std::env::temp_dir().join(format!("hapax-lines-{:032x}", host.random_u128()));
        host.files().create_new(&path).unwrap().write_all(text.as_bytes()).unwrap();
        Self { host, path }
    }

    fn append(&self, text: &str) {
        self.host.files().append(&self.path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn replace(&self, text: &str) {
        self.host.files().remove(&self.path).unwrap();
        self.host.files().create_new(&self.path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn cx(&self) -> SourceContext {
        SourceContext {
            host: self.host.clone(),
            clusters: Clusters::new(self.host.clone(), &BTreeMap::new()),
        }
    }

    fn source(&self) -> LinesSource {
        LinesSource::new("orders", [self.path.clone()])
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // A test may have removed it itself.
        let _ = self.host.files().remove(&self.path);
    }
}

fn make_pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// What was read up to the ends of the positions: offset and text of each line.
struct Read {
    lines: Vec<(i64, String)>,
    positions: Positions,
    skipped: u64,
}

async fn read(file: &Temporary, source: &LinesSource, positions: Positions) -> Result<Read, SourceError> {
    let cx = file.cx();
    let mut reader = source.reader(&cx, positions.clone()).await?;
    let mut read = Read { lines: Vec::new(), positions, skipped: 0 };
    while !read.positions.values().all(Position::at_end) {
        let chunk = reader.next().await?;
        let text = |value: Option<&[u8]>| String::from_utf8(value.unwrap().to_vec()).unwrap();
        read.lines.extend(chunk.batch.iter().map(|record| (record.offset, text(record.value))));
        read.skipped += chunk.skipped;
        read.positions.insert(chunk.batch.origin().split.clone(), chunk.position);
    }
    Ok(read)
}

async fn genesis(file: &Temporary, source: &LinesSource) -> Positions {
    source.genesis(&file.cx()).await.unwrap()
}

fn line(offset: i64, text: &str) -> (i64, String) {
    (offset, text.to_owned())
}

#[tokio::test]
async fn lines_are_records_at_their_offsets() {
    let file = Temporary::with("{\"a\":1}\r\n\n[2]\n3");
    let source = file.source();
    let read = read(&file, &source, genesis(&file, &source).await).await.unwrap();
    assert_eq!(read.lines, [line(0, "{\"a\":1}"), line(10, "[2]"), line(14, "3")]);
    assert_eq!(read.positions.values().next().unwrap().next, 15);
}

#[tokio::test]
async fn a_bounded_file_ends_where_it_ended_at_genesis() {
    let file = Temporary::with("1\n2\n");
    let source = file.source();
    let start = genesis(&file, &source).await;
    file.append("3\n");
    assert_eq!(read(&file, &source, start).await.unwrap().lines, [line(0, "1"), line(2, "2")]);
}

#[tokio::test]
async fn a_position_gives_the_rest_of_the_file_again() {
    let text: String = (0..100_000).map(|number| format!("{number}\n")).collect();
    let file = Temporary::with(&text);
    let source = file.source();
    let start = genesis(&file, &source).await;
    let cx = file.cx();
    let mut reader = source.reader(&cx, start.clone()).await.unwrap();
    let first = reader.next().await.unwrap();
    let split = first.batch.origin().split.clone();
    let rest = read(&file, &source, [(split, first.position)].into()).await.unwrap();
    let mut lines: Vec<_> = first.batch.iter().map(|r| r.offset).collect();
    assert!(lines.len() < 100_000, "one chunk does not hold the whole file");
    lines.extend(rest.lines.iter().map(|(offset, _)| *offset));
    assert_eq!(
        lines,
        read(&file, &source, start).await.unwrap().lines.iter().map(|l| l.0).collect::<Vec<_>>()
    );
    assert_eq!(lines.len(), 100_000);
}

#[tokio::test]
async fn a_line_that_is_not_json_stops_with_its_place_or_is_counted() {
    let file = Temporary::with("1\n{oops\n2\n");
    let mut source = file.source();
    let start = genesis(&file, &source).await;
    let error = read(&file, &source, start.clone()).await.err().expect("a bad line").to_string();
    let place = format!("file {}: the line at byte 2: the line is not JSON: ", file.path.display());
    assert!(error.starts_with(&place) && error.contains("on_error = \"skip\""), "{error}");

    source.bad_line = BadLine::Skip;
    let skipping = read(&file, &source, start.clone()).await.unwrap();
    assert_eq!((skipping.lines, skipping.skipped), (vec![line(0, "1"), line(8, "2")], 1));

    source.format = LineFormat::Text;
    assert_eq!(read(&file, &source, start).await.unwrap().lines[1], line(2, "{oops"));
}

#[tokio::test]
async fn a_text_line_may_be_empty() {
    let file = Temporary::with("a\n\nb\n");
    let source = LinesSource { format: LineFormat::Text, ..file.source() };
    let read = read(&file, &source, genesis(&file, &source).await).await.unwrap();
    assert_eq!(read.lines, [line(0, "a"), line(2, ""), line(3, "b")]);
}

#[tokio::test]
async fn another_file_in_its_place_is_not_served() {
    let file = Temporary::with("1\n2\n");
    let source = file.source();
    let start = genesis(&file, &source).await;
    source.serves(&file.cx(), &start).await.unwrap();
    file.replace("7\n8\n");
    let error = source.serves(&file.cx(), &start).await.unwrap_err();
    assert!(matches!(&error, SourceError::Gone { .. }), "{error}");
    assert!(error.to_string().contains("another file is in its place"), "{error}");
    assert!(source.reader(&file.cx(), start).await.is_err());
}

#[tokio::test]
async fn a_file_that_was_cut_or_removed_is_not_served() {
    let file = Temporary::with("1\n2\n");
    let source = file.source();
    let mut start = genesis(&file, &source).await;
    start.values_mut().for_each(|position| (position.next, position.end) = (6, None));
    let error = source.serves(&file.cx(), &start).await.unwrap_err().to_string();
    assert!(error.ends_with("the file has 4 bytes and had 6: it was cut"), "{error}");
    file.host.files().remove(&file.path).unwrap();
    let error = source.serves(&file.cx(), &start).await.unwrap_err().to_string();
    assert!(error.contains("the file is not there any more"), "{error}");
}

#[tokio::test]
async fn a_growing_file_keeps_its_identity() {
    let file = Temporary::with("1\n");
    let source = file.source();
    let start = genesis(&file, &source).await;
    file.append("2\n");
    source.serves(&file.cx(), &start).await.unwrap();
}

#[tokio::test]
async fn a_missing_file_of_a_new_job_is_a_wrong_path() {
    let file = Temporary::with("");
    let source = LinesSource::new("orders", ["/nowhere/orders.ndjson".into()]);
    let error = source.genesis(&file.cx()).await.unwrap_err();
    assert!(matches!(&error, SourceError::Configuration { .. }), "{error}");
    assert_eq!(error.to_string(), "source orders: there is no file /nowhere/orders.ndjson; correct the path");
}

#[tokio::test]
async fn what_is_no_regular_file_is_a_wrong_path_and_is_not_opened() {
    let file = Temporary::with("1\n");
    let fifo = file.path.with_extension("fifo");
    make_pipe(&fifo);
    for (path, what) in
        [(fifo.clone(), "a pipe"), (std::env::temp_dir(), "a folder"), ("/dev/zero".into(), "a device")]
    {
        let error = LinesSource::new("orders", [path.clone()]).genesis(&file.cx()).await.unwrap_err();
        assert!(matches!(&error, SourceError::Configuration { .. }), "{error}");
        let said = format!("source orders: {} is {what} and not a regular file", path.display());
        assert!(error.to_string().starts_with(&said), "{error}");
    }
    file.host.files().remove(&fifo).unwrap();
}

#[tokio::test]
async fn a_pipe_in_the_place_of_a_file_is_not_served_and_not_opened() {
    let file = Temporary::with("1\n");
    let source = file.source();
    let start = genesis(&file, &source).await;
    file.host.files().remove(&file.path).unwrap();
    make_pipe(&file.path);
    let error = source.serves(&file.cx(), &start).await.unwrap_err().to_string();
    let place = format!("file {}: byte 0 cannot be served: a pipe is in its place", file.path.display());
    assert!(error.starts_with(&place), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_followed_file_waits_for_more_and_for_line_breaks() {
    let file = Temporary::with("1\n2");
    let source = LinesSource { follow: true, ..file.source() };
    let start = genesis(&file, &source).await;
    assert_eq!(start.values().next().unwrap().end, None);
    let cx = file.cx();
    let mut reader = source.reader(&cx, start).await.unwrap();
    let first = reader.next().await.unwrap();
    assert_eq!((first.batch.len(), first.position.next), (1, 2));
    let later = file.host.timeout(std::time::Duration::from_secs(5), reader.next()).await;
    assert!(later.is_none(), "a line without a line break is not there yet");
    file.append("2\n");
    let second = reader.next().await.unwrap();
    assert_eq!(second.batch.iter().next().unwrap().value, Some(b"22".as_slice()));
    file.replace("1\n22\nother\n");
    assert!(matches!(reader.next().await.unwrap_err(), SourceError::Gone { .. }));
}

#[test]
fn standard_input_can_promise_nothing() {
    let source = LinesSource::new("stdin", [STANDARD_INPUT.into()]);
    assert!(!source.replayable());
    assert!(LinesSource::new("files", ["a".into()]).replayable());
}
