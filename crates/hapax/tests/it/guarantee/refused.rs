//! Settings that would empty a guarantee of its meaning.

use super::scripted::Scripted;
use hapax::{Guarantee, Job, JobError, ProducerSettings, SinkTopic};
use std::time::Duration;

fn planned(linger: Duration, delivery_timeout: Option<Duration>) -> Result<(), JobError> {
    let producer = ProducerSettings { linger, delivery_timeout, ..ProducerSettings::default() };
    Job::new("refused")
        .cluster("main", "localhost:1")?
        .source(Scripted::new(1, 1))
        .sink(SinkTopic { producer, ..SinkTopic::new("main", "out").guarantee(Guarantee::None) })
        .plan()
        .map(drop)
}

#[test]
fn a_delivery_timeout_without_time_for_a_request_is_refused() {
    let (linger, second) = (Duration::from_millis(200), Duration::from_secs(1));
    planned(linger, Some(linger + second)).unwrap();
    planned(linger, None).unwrap();
    let error = planned(linger, Some(second)).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert_eq!(
        error.to_string(),
        "E0202: sink out: delivery_timeout 1s leaves no time for a request after linger 200ms; it must be at least \
         1.2s, raise it or lower linger"
    );
}

#[test]
fn records_wait_two_minutes_for_their_acknowledgement_unless_told_otherwise() {
    assert_eq!(ProducerSettings::default().delivery_timeout, Some(Duration::from_secs(120)));
    assert_eq!(ProducerSettings::default().linger, Duration::from_millis(5));
}
