//! Transactions without a time-out (KIP-939): no Kafka that these tests know has the whole of it, and each says so in
//! its own way. Where one has it, see the tests of the binary.

use crate::support::*;
use hapax_kafka::{
    KafkaCode,
    transaction::{self, TwoPhaseRefused},
};
use xtask::kafka::Cluster;

const UNSTABLE: (&str, &str) = ("unstable.api.versions.enable", "true");
const SWITCHED_ON: (&str, &str) = ("transaction.two.phase.commit.enable", "true");

fn probe(bootstrap: &str) -> Result<(), TwoPhaseRefused> {
    block_on(async {
        let client = connect(bootstrap).await;
        transaction::probe_two_phase(&client, &unique("probe"), soon(&client)).await.unwrap()
    })
}

#[test]
fn a_stock_kafka_does_not_offer_the_version() {
    for version in Version::ALL {
        let refused = probe(&shared(version).bootstrap).unwrap_err();
        let TwoPhaseRefused::NotOffered { offered: Some(offered) } = refused else { panic!("{refused}") };
        assert!(offered.contains(&4) && *offered.end() < 6, "{version:?}: {offered:?}");
    }
}

#[test]
fn a_kafka_that_offers_the_version_cannot_keep_what_is_prepared() {
    let properties: [&[_]; 2] = [&[UNSTABLE], &[UNSTABLE, SWITCHED_ON]];
    for (properties, switched_on) in properties.into_iter().zip([false, true]) {
        let builder = Cluster::builder(Version::V4_4);
        let cluster = properties.iter().fold(builder, |builder, (name, value)| builder.property(name, value));
        let cluster = cluster.start().unwrap();
        let refused = probe(&cluster.bootstrap()).unwrap_err();
        let denied = TwoPhaseRefused::Denied { code: KafkaCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED };
        assert_eq!(refused, if switched_on { TwoPhaseRefused::CannotKeep } else { denied });
    }
}
