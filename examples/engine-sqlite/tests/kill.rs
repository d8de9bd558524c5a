//! The engine is killed at random moments, and stays down longer than its transactions may: every number is in the topic
//! once and in order, as librdkafka reads it.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, missing_docs, reason = "a test")]

use hapax::engine::Handle;
use hapax_broker::{Broker, ServerOptions, Settings};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use xtask::{
    judge::{Audit, Expected, Judge},
    kafka::{Version, shared, transactions},
    process::Supervised,
};

const KILLS: u32 = 20;

/// The whole test ends by then, or fails.
const LIMIT: Duration = Duration::from_secs(300);

struct Engine {
    bootstrap: String,
    topic: String,
    file: PathBuf,
    count: u64,
    timeout_ms: u64,
}

impl Engine {
    fn new(bootstrap: &str, name: &str, timeout_ms: u64) -> Self {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let topic = format!("{name}-{nanos}");
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{topic}.sqlite"));
        Judge::shared().create_topic(bootstrap, &topic, 2, &[]).unwrap();
        Self { bootstrap: bootstrap.to_owned(), topic, file, count: 1_000_000_000, timeout_ms }
    }

    fn start(&self) -> Supervised {
        let mut command = Command::new(env!("CARGO_BIN_EXE_engine-sqlite"));
        command.args([&self.bootstrap, &self.topic]).arg(&self.file);
        command.args([self.count.to_string(), self.timeout_ms.to_string()]);
        Supervised::spawn(command.stdin(Stdio::null())).unwrap()
    }

    /// Where the engine's checkpoint is.
    fn position(&self) -> u64 {
        let state = self.ask::<Vec<u8>>("SELECT state FROM checkpoint").unwrap_or_default();
        String::from_utf8(state).unwrap().parse().unwrap_or(0)
    }

    /// Is a transaction open that the engine has decided?
    fn has_decided(&self) -> bool {
        let open = transactions(&self.bootstrap).unwrap();
        let open: Vec<_> = open.iter().filter(|one| one.is_open()).map(|one| one.id.as_str()).collect();
        let db = rusqlite::Connection::open(&self.file).unwrap();
        db.busy_timeout(Duration::from_secs(10)).unwrap();
        let mut handles = db.prepare("SELECT bytes FROM handle").unwrap();
        let handles = handles.query_map([], |row| row.get::<_, Vec<u8>>(0)).unwrap();
        handles.map(|bytes| Handle::from_bytes(&bytes.unwrap()).unwrap()).any(|handle| {
            let id = handle.transactional_id.to_string();
            open.contains(&id.as_str())
        })
    }

    fn ask<T: rusqlite::types::FromSql>(&self, select: &str) -> Option<T> {
        let db = rusqlite::Connection::open(&self.file).unwrap();
        db.busy_timeout(Duration::from_secs(10)).unwrap();
        db.query_row(select, [], |row| row.get(0)).ok()
    }

    /// Lives for a random while after it has gone on, and is killed.
    fn live_and_die(&self, random: &mut u64) {
        let (mut engine, before, began) = (self.start(), self.position(), Instant::now());
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let life = Duration::from_millis((*random >> 33) % 400);
        // One death in four comes while it starts; the others when it has gone on.
        if !(*random >> 20).is_multiple_of(4) {
            while self.position() <= before {
                assert!(began.elapsed() < Duration::from_secs(60), "the engine does not go on");
                assert!(engine.try_wait().unwrap().is_none(), "the engine has ended by itself");
                thread::sleep(Duration::from_millis(5));
            }
        }
        thread::sleep(life);
        assert!(engine.try_wait().unwrap().is_none(), "the engine has ended by itself");
        engine.kill().unwrap();
    }

    /// Kills it until a decided epoch is left behind.
    fn die_with_a_decided_epoch(&self, random: &mut u64) {
        let began = Instant::now();
        while !self.has_decided() {
            assert!(began.elapsed() < LIMIT, "it never died between decision and proof");
            self.live_and_die(random);
        }
    }

    /// Lets it finish a little further on, and audits all.
    fn finish(mut self) {
        self.count = self.position() + 500;
        let status = self.start().wait_for(Duration::from_secs(120)).unwrap().expect("it finishes in time");
        assert!(status.success(), "{status}");
        let audit = Audit {
            topics: vec![self.topic.clone()],
            expected: Expected::Range { from: 0, count: self.count },
            field: "id".into(),
            source_partitions: 2,
            value: None,
        };
        let report = Judge::shared().audit(&self.bootstrap, &audit).unwrap();
        assert!(report.is_exact() && report.records == self.count, "{report:?}");
        fs::remove_file(&self.file).unwrap();
    }
}

fn killed(engine: &Engine) -> u64 {
    let mut random = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {random}");
    for _ in 0..KILLS {
        engine.live_and_die(&mut random);
    }
    random
}

#[test]
fn killed_at_random_moments_on_apache_kafka_it_writes_every_number_once() {
    thread::scope(|scope| {
        for version in Version::ALL {
            scope.spawn(move || {
                let engine = Engine::new(&shared(version).bootstrap, "engine-sqlite", 60_000);
                killed(&engine);
                engine.finish();
            });
        }
    });
}

/// The broker aborts what was decided while the engine is down: the next run writes it again.
#[test]
fn down_longer_than_its_transactions_may_be_it_writes_every_number_once() {
    for transaction_version in [0, 2] {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let settings = Settings { transaction_version, ..Settings::default() };
        let broker = runtime.block_on(Broker::start(settings, ServerOptions::default())).unwrap();
        let engine = Engine::new(&broker.bootstrap(), "engine-sqlite", 60_000);
        let mut random = killed(&engine);
        engine.die_with_a_decided_epoch(&mut random);
        broker.jump_clock(120_000).unwrap();
        assert!(!engine.has_decided(), "the broker has aborted what was decided");
        engine.finish();
    }
}
