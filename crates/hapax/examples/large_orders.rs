//! The pipeline of `examples/orders.toml` in Rust: large orders, exactly once, with a closure instead of jq.
//!
//! `cargo run -p hapax --example large_orders -- localhost:9092 file:///var/lib/hapax/large-orders`

use hapax::{Host, Job, Name, RunOptions, SinkTopic, source::KafkaSource};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let brokers = arguments.next().ok_or("the brokers, please")?;
    let store = arguments.next().ok_or("the checkpoint store, please")?;
    let plan = Job::new("large-orders")
        .store(&store)
        .cluster("main", &brokers)?
        .source(KafkaSource::new(Name::new("main")?, ["orders"]))
        .filter(|order| order.value.is_some_and(|value| amount(value) > 100))
        .sink(SinkTopic::new("main", "orders-large"))
        .plan()?;
    let summary = hapax::run(plan, Host::real(), RunOptions::default()).await?;
    println!("{} records in, {} out", summary.progress.records_in, summary.progress.records_out);
    Ok(())
}

fn amount(order: &[u8]) -> u64 {
    let order: serde_json::Value = serde_json::from_slice(order).unwrap_or_default();
    order["amount"].as_u64().unwrap_or_default()
}
