//! What a broker can do: versions per API, and the cluster's finalized features.

use hapax_commit::TransactionVersion;
use kafka_protocol::messages::ApiVersionsResponse;
use std::{collections::BTreeMap, ops::RangeInclusive};

/// Finalized level of `transaction.version` from which the V2 protocol is in force (KIP-890).
const V2_LEVEL: i16 = 2;

/// One ApiVersions answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerVersions {
    ranges: BTreeMap<i16, (i16, i16)>,
    finalized: BTreeMap<String, i16>,
    features_epoch: i64,
}

impl BrokerVersions {
    pub(super) fn of(response: &ApiVersionsResponse) -> Self {
        let ranges = response.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version)));
        let finalized = response.finalized_features.iter();
        Self {
            ranges: ranges.collect(),
            finalized: finalized
                .map(|feature| (feature.name.to_string(), feature.max_version_level))
                .collect(),
            features_epoch: response.finalized_features_epoch,
        }
    }

    /// Versions of an API that the broker advertises.
    pub fn range(&self, api_key: i16) -> Option<RangeInclusive<i16>> {
        self.ranges.get(&api_key).map(|&(min, max)| min..=max)
    }

    /// The finalized level of a feature; 0 where the cluster has not finalized it.
    pub fn finalized_level(&self, feature: &str) -> i16 {
        self.finalized.get(feature).copied().unwrap_or(0)
    }

    /// The metadata epoch of the finalized features: a higher one is newer; -1 where the broker does not know it.
    pub fn features_epoch(&self) -> i64 {
        self.features_epoch
    }

    /// The transaction protocol that the cluster has finalized. Brokers accept V2 requests below that level too, and
    /// then hang the id: clients have to look.
    pub fn transaction_version(&self) -> TransactionVersion {
        if self.finalized_level("transaction.version") >= V2_LEVEL {
            TransactionVersion::V2
        } else {
            TransactionVersion::V1
        }
    }
}
