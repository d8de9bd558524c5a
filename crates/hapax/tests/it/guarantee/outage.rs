//! A broker that is gone for longer than any timeout of the job, and comes back.

use super::{
    case::{Case, GUARANTEED},
    eventually,
    running::Running,
    scripted::Scripted,
};
use std::time::{Duration, Instant};
use xtask::kafka::{Cluster, Version};

const START_TIMEOUT: Duration = Duration::from_secs(3);

#[test]
fn runs_that_fail_are_followed_by_others_until_the_broker_is_back() {
    let cluster = Cluster::builder(Version::V4_4).start().unwrap();
    let cases = GUARANTEED.map(|guarantee| {
        let source = Scripted::new(2, 200).steady();
        let name = format!("outage-{guarantee:?}").to_lowercase();
        let mut case = Case::new(&name, &cluster.bootstrap(), guarantee, source);
        case.producer.delivery_timeout = Some(Duration::from_millis(1_500));
        case.settings.start_timeout = START_TIMEOUT;
        case
    });
    let running = cases.each_ref().map(Case::start);
    for (case, running) in cases.iter().zip(&running) {
        eventually(&format!("{} commits", case.name), || (running.progress().epoch > 0).then_some(()));
    }
    cluster.kill(1).unwrap();
    let began = Instant::now();
    let before = running.each_ref().map(|running| running.progress().runs);
    for (running, before) in running.iter().zip(before) {
        eventually("run follows run", || (running.progress().runs >= before + 3).then_some(()));
    }
    eventually("the outage outlasts start_timeout", || (began.elapsed() > START_TIMEOUT * 2).then_some(()));
    assert!(!running.iter().any(Running::has_ended), "a job that has worked once does not give up");
    cluster.restart(1).unwrap();
    for (case, running) in cases.iter().zip(running) {
        running.ended().finished();
        case.assert_complete();
        let thin = case.log("replication factor 1 and min.insync.replicas = 1");
        assert_eq!(thin.len(), 1, "said once, not in every run: {thin:?}");
    }
}
