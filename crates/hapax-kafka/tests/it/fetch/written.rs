//! What a transaction has left in a partition, compared with what its handle says.

use super::*;
use hapax_commit::HandlePartition;
use hapax_kafka::fetch::{WrittenError, WrittenReader};

async fn read(client: &Client, prepared: &Prepared, part: &HandlePartition) -> Result<u64, WrittenError> {
    let mut reader = WrittenReader::new(client, prepared.identity, part, soon(client));
    let mut count = 0;
    while let Some(records) = reader.next().await? {
        count += records.len() as u64;
    }
    Ok(count)
}

#[test]
fn records_that_are_not_as_they_were_written_are_told_and_those_of_others_are_passed_over() {
    for version in Version::ALL {
        let bootstrap = &shared(version).bootstrap;
        let topic = made(bootstrap, "written", 1);
        block_on(async {
            let client = connect(bootstrap).await;
            let topic_id = client.topics(&[&topic]).await.unwrap()[0].id;
            let before = Prepared::begin(&client, &format!("{topic}-a"), TIMEOUT, &topic, &numbered(2)).await;
            let ours = Prepared::begin(&client, &format!("{topic}-b"), TIMEOUT, &topic, &numbered(3)).await;
            let behind = Prepared::begin(&client, &format!("{topic}-c"), TIMEOUT, &topic, &numbered(4)).await;
            let (first_offset, last_offset) = (ours.first_offset, ours.first_offset + 2);
            let part = HandlePartition {
                topic: topic.clone(),
                topic_id,
                partition: 0,
                first_offset,
                last_offset,
                count: 3,
                digest: None,
            };
            let told = |outcome: Result<u64, WrittenError>| match outcome {
                Err(error @ WrittenError::Incomplete { .. }) => error.to_string(),
                other => panic!("{other:?}"),
            };
            // Open, then aborted: the records are there as before.
            for end in [false, true] {
                if end {
                    ours.end(&client, false).await;
                }
                assert_eq!(read(&client, &ours, &part).await.unwrap(), 3);
                let more = HandlePartition { count: 4, last_offset: last_offset + 1, ..part.clone() };
                assert!(
                    told(read(&client, &ours, &more).await).contains("3 records are there, 4 were written")
                );
                let other = HandlePartition { digest: Some(7), ..part.clone() };
                assert!(told(read(&client, &ours, &other).await).contains("00000007"));
            }
            before.end(&client, true).await;
            behind.end(&client, true).await;
            Judge::shared().delete_records(bootstrap, &topic, 0, first_offset + 1).unwrap();
            let gone = read(&client, &ours, &part).await;
            assert!(matches!(gone, Err(WrittenError::Gone { .. })), "{gone:?}");
        });
    }
}
