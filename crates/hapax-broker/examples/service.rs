//! A service's own test, with the broker as a dev-dependency: `cargo test -p hapax-broker --example service`.

use hapax::{Host, Job, JobError, Name, RunOptions, SinkTopic};
use hapax::{sink::LinesSink, source::End, source::GeneratorSource, source::KafkaSource};

/// The service: a thousand orders into a topic, exactly once.
async fn service(brokers: &str) -> Result<u64, JobError> {
    let job = Job::new("shop").store("memory://").cluster("main", brokers)?;
    let job = job.source(GeneratorSource::new("shop", Some(1_000))).sink(SinkTopic::new("main", "orders"));
    Ok(hapax::run(job.plan()?, Host::real(), RunOptions::default()).await?.progress.records_out)
}

/// What a `read_committed` reader sees of it.
async fn visible(brokers: &str) -> Result<u64, JobError> {
    let orders = KafkaSource::new(Name::new("main").expect("legal"), ["orders"]);
    let job = Job::new("reader").cluster("main", brokers)?.source(KafkaSource { end: End::Latest, ..orders });
    let plan = job.filter(|_| false).other_sink(LinesSink::stdout("none")).plan()?;
    Ok(hapax::run(plan, Host::real(), RunOptions::default()).await?.progress.records_in)
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_neither_loses_nor_doubles_orders() {
    use hapax_broker::{Afterwards, ApiKey, Broker, Rule, ServerOptions, Settings};
    let broker = Broker::start(Settings::default(), ServerOptions::default()).await.unwrap();
    broker.create_topic("orders", 4).await.unwrap();
    // The guard fails the test if the fault never happens.
    let rule = Rule::on(ApiKey::EndTxn).commit(true).lose_answer(Afterwards::Close);
    let lost = broker.faults().guard(rule).unwrap();
    assert_eq!(service(&broker.bootstrap()).await.unwrap(), 1_000);
    assert_eq!(lost.fired(), 1);
    assert_eq!(visible(&broker.bootstrap()).await.unwrap(), 1_000);
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    println!("{:?} {:?}", service(&arguments[1]).await, visible(&arguments[1]).await);
}
