//! An epoch that is prepared and cannot be decided (H22): a reader does not wait behind it for as long as its transactions live.

use super::{case::Case, eventually, scripted::Scripted};
use hapax::Guarantee;
use hapax_broker::{Afterwards, ApiKey, Broker, Rule, ServerOptions, Settings};
use std::time::{Duration, Instant};
use xtask::judge::{Bounds, Judge};

const PROTOCOLS: [i16; 2] = [0, 2];
const RECORDS: u64 = 20;
const TIMEOUT: Duration = Duration::from_secs(40);

fn first_partition(case: &Case) -> Bounds {
    let bounds = Judge::shared().end_offsets(&case.bootstrap, &case.name).unwrap();
    bounds.into_iter().find(|bounds| bounds.partition == 0).unwrap()
}

fn hangs(transaction_version: i16) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let settings = Settings { transaction_version, ..Settings::default() };
    let broker = runtime.block_on(Broker::start(settings, ServerOptions::default())).unwrap();
    let source = Scripted::new(2, RECORDS);
    let name = format!("undecided-v{transaction_version}");
    let mut case = Case::new(&name, &broker.bootstrap(), Guarantee::ExactlyOnce, source);
    case.settings.transaction_timeout = Some(TIMEOUT);
    // Each shard has its own connections.
    case.settings.workers = Some(2);
    let silent = Rule::on(ApiKey::Produce).topic(&*case.name).partition(1).always();
    let silent = broker.faults().guard(silent.drop_request(Afterwards::Hang)).unwrap();
    case.source.allow(RECORDS);

    let began = Instant::now();
    let running = case.start();
    case.await_in_log(RECORDS);
    assert_eq!(first_partition(&case).stable_end, 0, "readers wait behind the first partition's transaction");
    eventually("readers go on", || (first_partition(&case).stable_end > 0).then_some(()));
    assert!(began.elapsed() < TIMEOUT, "that was the broker's time-out: {:?}", began.elapsed());
    let said = case.log("was given up before it was decided: shards 1 have not prepared it");
    assert!(!said.is_empty(), "{:?}", case.log(""));
    assert!(case.manifests().is_empty(), "nothing of it was decided");
    drop(silent);
    running.ended().finished();
    case.assert_complete();
}

#[test]
fn readers_go_on_at_half_of_the_timeout_behind_an_epoch_that_one_shard_cannot_prepare() {
    std::thread::scope(|scope| {
        for version in PROTOCOLS {
            scope.spawn(move || hangs(version));
        }
    });
}
