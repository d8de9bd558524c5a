use super::*;
use crate::cluster::Clusters;
use std::collections::BTreeMap;

fn cx() -> SourceContext {
    let host = Host::real();
    SourceContext { clusters: Clusters::new(host.clone(), &BTreeMap::new()), host }
}

/// Split, key and value of every record from the positions on.
async fn all(source: &GeneratorSource, mut positions: Positions) -> Vec<(u32, i64, String, String)> {
    let cx = cx();
    let mut reader = source.reader(&cx, positions.clone()).await.unwrap();
    let mut read = Vec::new();
    while !positions.values().all(Position::at_end) {
        let chunk = reader.next().await.unwrap();
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
        let split = u32::try_from(chunk.batch.origin().partition).unwrap();
        read.extend(chunk.batch.iter().map(|r| (split, r.offset, text(r.key), text(r.value))));
        positions.insert(chunk.batch.origin().split.clone(), chunk.position);
    }
    read.sort();
    read
}

fn source(count: u64, splits: u32) -> GeneratorSource {
    GeneratorSource { splits, seed: 7, ..GeneratorSource::new("gen", Some(count)) }
}

#[tokio::test]
async fn every_id_below_the_count_is_made_once() {
    for (count, splits) in [(0, 1), (1, 3), (10, 1), (2_500, 4), (2_501, 4), (2_503, 4)] {
        let source = GeneratorSource { value: Template::parse("$id").unwrap(), ..source(count, splits) };
        let read = all(&source, source.positions()).await;
        let mut ids: Vec<u64> = read.iter().map(|(_, _, _, value)| value.parse().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..count).collect::<Vec<_>>(), "{count} over {splits}");
    }
}

#[tokio::test]
async fn a_position_gives_the_same_records_again() {
    let source = source(3_000, 2);
    let whole = all(&source, source.positions()).await;
    let mut later = source.positions();
    later.values_mut().for_each(|position| position.next = 700);
    let tail: Vec<_> = whole.iter().filter(|(_, offset, ..)| *offset >= 700).cloned().collect();
    assert_eq!(all(&source, later).await, tail);
    assert_ne!(all(&GeneratorSource { seed: 8, ..source.clone() }, source.positions()).await, whole);
}

#[tokio::test]
async fn orders_are_json_with_lifelike_fields() {
    let source = source(100, 1);
    for (_, offset, key, value) in all(&source, source.positions()).await {
        let order: serde_json::Value = serde_json::from_str(&value).unwrap();
        assert_eq!(order["id"], offset);
        assert_eq!(order["customer"], key);
        assert!(order["amount"].as_f64().unwrap() > 0.0);
        assert!(CURRENCIES.contains(&order["currency"].as_str().unwrap()));
        assert!(order["ts"].as_u64().unwrap() >= FIRST_TS);
    }
}

#[tokio::test]
async fn an_endless_generator_goes_on() {
    let source = GeneratorSource::new("gen", None);
    assert!(source.positions().values().all(|position| position.end.is_none()));
    let cx = cx();
    let mut reader = source.reader(&cx, source.positions()).await.unwrap();
    for first in [0, 1_000, 2_000] {
        assert_eq!(reader.next().await.unwrap().batch.iter().next().unwrap().offset, first);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_bounds_the_records_of_a_time() {
    let source = GeneratorSource { rate: Some(50.0), ..source(100, 2) };
    let cx = cx();
    let began = cx.host.now();
    let mut reader = source.reader(&cx, source.positions()).await.unwrap();
    let mut made = 0;
    while made < 100 {
        made += reader.next().await.unwrap().batch.len();
        let passed = (cx.host.now() - began).as_secs_f64();
        assert!(made as f64 <= passed * 50.0 + 1.0, "{made} after {passed} s");
    }
    let passed = (cx.host.now() - began).as_secs_f64();
    assert!((1.9..2.2).contains(&passed), "{passed}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_half_the_splits_makes_half_the_rate() {
    let source = GeneratorSource { rate: Some(100.0), ..source(100, 2) };
    let cx = cx();
    let began = cx.host.now();
    let half: Positions = source.positions().into_iter().take(1).collect();
    let mut reader = source.reader(&cx, half).await.unwrap();
    let mut made = 0;
    while made < 50 {
        made += reader.next().await.unwrap().batch.len();
    }
    assert!((0.9..1.2).contains(&(cx.host.now() - began).as_secs_f64()));
}

#[test]
fn templates_name_what_they_know() {
    let text = |template: &str| {
        let mut out = Vec::new();
        Template::parse(template).unwrap().write(&mut out, &Order::new(0, 42, 3));
        String::from_utf8(out).unwrap()
    };
    assert_eq!(text("no names"), "no names");
    assert_eq!(text("$id-$split, $$id, 5$"), "42-3, $id, 5$");
    let error = Template::parse("{$name}").unwrap_err();
    assert_eq!(
        error,
        "there is no $name: a template knows $id, $customer, $amount, $currency, $ts, $split, and $$ for a $"
    );
}
