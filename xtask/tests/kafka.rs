//! Real brokers do what the library says of them.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use xtask::judge::{Audit, Expected, Isolation, Judge, Numbers, Outcome, Record};
use xtask::kafka::{Cluster, Version, shared};

const IDLE: Duration = Duration::from_secs(2);

#[test]
fn records_survive_the_death_of_their_broker() {
    let t = Instant::now();
    let cluster = Cluster::builder(Version::V4_4).start().unwrap();
    eprintln!("start {:?}", t.elapsed());
    let bootstrap = cluster.bootstrap();
    let judge = Judge::shared();
    judge.create_topic(&bootstrap, "numbers", 4, &[]).unwrap();
    assert_eq!(judge.produce_numbers(&bootstrap, "numbers", &Numbers::new(4, 100)).unwrap(), 100);
    assert!(judge.audit(&bootstrap, &Audit::copy("numbers", 4, 100)).unwrap().is_exact());
    eprintln!("audited {:?}", t.elapsed());

    let port = cluster.port(1);
    cluster.kill(1).unwrap();
    assert_eq!(cluster.process_id(1), None);
    eprintln!("killed {:?}", t.elapsed());
    cluster.restart(1).unwrap();
    eprintln!("restarted {:?}", t.elapsed());
    assert_eq!(cluster.port(1), port);
    assert!(judge.audit(&bootstrap, &Audit::copy("numbers", 4, 100)).unwrap().is_exact());
    let tools = cluster.tools().unwrap();
    let mut lines = tools.console_consume(&bootstrap, "numbers", Isolation::ReadCommitted, IDLE).unwrap();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 100);
    eprintln!("consumed {:?}", t.elapsed());

    for level in [0, 1, 2] {
        cluster.set_transaction_version(level).unwrap();
        eprintln!("level {level} {:?}", t.elapsed());
    }
    cluster.stop(1).unwrap();
    eprintln!("stopped {:?}", t.elapsed());
    cluster.restart(1).unwrap();
    eprintln!("restarted {:?}", t.elapsed());
}
#[test]
fn three() {
    let t = Instant::now();
    let cluster = Cluster::builder(Version::V4_4).nodes(3).start().unwrap();
    eprintln!("start 3 {:?}", t.elapsed());
    cluster.kill(2).unwrap();
    cluster.restart(2).unwrap();
    eprintln!("restart 2 {:?}", t.elapsed());
}
#[test]
fn old() {
    let t = Instant::now();
    let cluster = shared(Version::V3_9);
    eprintln!("start 3.9 {:?}", t.elapsed());
    let tools = xtask::tools::Tools::new(Version::V3_9).unwrap();
    eprintln!("{:?}", tools.transactions_list(&cluster.bootstrap));
}
