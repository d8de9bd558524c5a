//! `cargo xtask timely`: the example dataflow of two processes, killed again and again, its output audited by the judge.
//!
//! The example is a workspace of its own and is built by this command alone. Either process is killed, at a random
//! moment or right behind a decision; the other one does not outlive it, and both are started again on the same folder.
//! Some kills must have left a transaction open that was decided, or nothing was shown.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use xtask::judge::{Audit, Expected, Judge};
use xtask::kafka::{Version, start_shared, transactions};
use xtask::process::{Supervised, tail};

use super::test::demand;
use crate::Failure;
use crate::arguments::Arguments;
use crate::need::{self, Need};

const KILLS: u32 = 20;

/// Numbers in an epoch of the example.
const EPOCH: u64 = 100;

/// Transactional ids of a lane: an epoch is written under that with its number, by this.
const IDS: u64 = 3;

/// Epochs that follow the last kill.
const REST: u64 = 5;

/// All kills of one release have happened by then, or the command fails.
const LIMIT: Duration = Duration::from_secs(300);

/// How long the processes may take to go on after a start.
const START_LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let kills = arguments.parsed("--kills")?.unwrap_or(KILLS);
    let seed = arguments.parsed("--seed")?.unwrap_or_else(random_seed);
    let version = match arguments.value("--version")? {
        None => None,
        Some(number) => Some(
            Version::from_number(&number)
                .ok_or_else(|| Failure::Usage(format!("no release {number:?} is provisioned")))?,
        ),
    };
    arguments.nothing_left()?;
    need::provide(&[Need::Java, Need::Maven, Need::Python, Need::Compiler])?;
    let program = build()?;
    for version in Version::ALL.into_iter().filter(|one| version.is_none_or(|wanted| wanted == *one)) {
        let cluster = start_shared(version)?;
        let mut dataflow = Dataflow::new(&program, &cluster.bootstrap(), seed)?;
        println!("kafka {version}, seed {seed}: {kills} kills");
        let decided = dataflow.kill(kills)?;
        println!("{decided} kills left a decided transaction open");
        dataflow.finish()?;
        if decided == 0 {
            return Err(Failure::Failed("no kill fell between a decision and its commit".to_owned()));
        }
    }
    Ok(())
}

fn random_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn build() -> Result<PathBuf, Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace");
    let folder = root.join("examples/timely");
    let mut command = super::test::cargo(&["build", "--locked"]);
    demand("the build of examples/timely", command.current_dir(&folder))?;
    Ok(folder.join("target/debug/engine-timely"))
}

struct Dataflow<'a> {
    program: &'a Path,
    bootstrap: String,
    topic: String,
    folder: PathBuf,
    random: u64,
}

impl<'a> Dataflow<'a> {
    fn new(program: &'a Path, bootstrap: &str, seed: u64) -> Result<Self, Failure> {
        let topic = format!("timely-{}", random_seed());
        let folder = std::env::temp_dir().join(format!("hapax-{topic}"));
        fs::create_dir_all(&folder)?;
        xtask::process::remove_at_exit(&folder)?;
        Judge::shared().create_topic(bootstrap, &topic, 2, &[])?;
        Ok(Self { program, bootstrap: bootstrap.to_owned(), topic, folder, random: seed })
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    /// Both processes, which find each other through a file of addresses.
    fn start(&self, count: u64) -> Result<[Supervised; 2], Failure> {
        let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let mut hosts = String::new();
        for listener in listeners {
            hosts.push_str(&format!("{}\n", listener?.local_addr()?));
        }
        let hostfile = self.folder.join("hosts");
        fs::write(&hostfile, hosts)?;
        let process = |number: &str| {
            let mut command = Command::new(self.program);
            command.args([&self.bootstrap, &self.topic]).arg(self.folder.join("checkpoints"));
            command.arg(count.to_string()).args(["-w", "1", "-n", "2", "-p", number, "-h"]).arg(&hostfile);
            // A process that loses the other one panics, which is how it ends here.
            let log = fs::File::create(self.log(number))?;
            Supervised::spawn(command.stdin(Stdio::null()).stderr(log).stdout(Stdio::null()))
        };
        Ok([process("0")?, process("1")?])
    }

    fn log(&self, number: &str) -> PathBuf {
        self.folder.join(format!("process-{number}.log"))
    }

    /// The end of what both processes have said since the last start.
    fn said(&self) -> String {
        let said = |number: &str| fs::read_to_string(self.log(number)).unwrap_or_default();
        ["0", "1"].map(|number| format!("process {number}: {}", tail(&said(number), 12))).join("\n")
    }

    /// Files in the folder: every claim, recovery and decision adds one.
    fn decisions(&self) -> u64 {
        let names = fs::read_dir(self.folder.join("checkpoints")).into_iter().flatten();
        let numbers = names.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u64>().ok());
        numbers.max().unwrap_or(0)
    }

    fn epoch(&self) -> Result<u64, Failure> {
        let newest = self.folder.join("checkpoints").join(format!("{:020}", self.decisions()));
        let saved: serde_json::Value = serde_json::from_slice(&fs::read(newest)?)
            .map_err(|error| Failure::Failed(format!("the newest checkpoint: {error}")))?;
        Ok(saved["epoch"].as_u64().unwrap_or(0))
    }

    /// Ids of the epoch that the newest checkpoint has decided and that are open still.
    fn is_decided_and_open(&self) -> Result<bool, Failure> {
        let number = format!(".{}", self.epoch()? % IDS);
        let listed = transactions(&self.bootstrap)?;
        let of_job = |id: &str| id.starts_with(&format!("{}.", self.topic)) && id.ends_with(&number);
        Ok(listed.iter().any(|one| of_job(&one.id) && one.is_open()))
    }

    /// How many kills fell between a decision and its commit.
    fn kill(&mut self, kills: u32) -> Result<u32, Failure> {
        let mut decided = 0;
        let began = Instant::now();
        for kill in 0..kills {
            if began.elapsed() > LIMIT {
                return Err(Failure::Failed(format!("{kill} of {kills} kills within {LIMIT:?}")));
            }
            let before = self.decisions();
            let mut processes = self.start(u64::MAX / EPOCH)?;
            let more = self.below(12);
            self.wait_for(&mut processes, before + more)?;
            if kill % 2 == 0 {
                thread::sleep(Duration::from_millis(self.below(200)));
            }
            let first = self.below(2) as usize;
            processes[first].kill()?;
            thread::sleep(Duration::from_millis(self.below(100)));
            processes[1 - first].kill()?;
            decided += u32::from(self.is_decided_and_open()?);
        }
        Ok(decided)
    }

    fn wait_for(&self, processes: &mut [Supervised; 2], decisions: u64) -> Result<(), Failure> {
        let began = Instant::now();
        while self.decisions() < decisions {
            for process in processes.iter_mut() {
                if let Some(status) = process.try_wait()? {
                    return Err(Failure::Failed(format!(
                        "a process of the dataflow has ended by itself: {status}\n{}",
                        self.said()
                    )));
                }
            }
            if began.elapsed() > START_LIMIT {
                return Err(Failure::Failed(format!("the dataflow does not go on within {START_LIMIT:?}")));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Lets it go on a little, to the end, and reads everything.
    fn finish(&self) -> Result<(), Failure> {
        let count = (self.epoch()? + REST) * EPOCH;
        for mut process in self.start(count)? {
            match process.wait_for(START_LIMIT)? {
                Some(status) if status.success() => {}
                other => {
                    return Err(Failure::Failed(format!(
                        "the last start has not finished well: {other:?}\n{}",
                        self.said()
                    )));
                }
            }
        }
        let audit = Audit {
            topics: vec![self.topic.clone()],
            expected: Expected::Range { from: 0, count },
            field: "id".to_owned(),
            source_partitions: 2,
            value: None,
        };
        let report = Judge::shared().audit(&self.bootstrap, &audit)?;
        println!(
            "{} records: lost {}, duplicated {}, reordered {}",
            report.records, report.lost, report.duplicated, report.reordered
        );
        match report.is_exact() && report.records == count {
            true => Ok(()),
            false => Err(Failure::Failed(format!("the output is not exact: {report:?}"))),
        }
    }
}
