//! A rule: what it waits for and what it does. Data only, the same in Rust and in JSON.

use crate::state::{NodeId, Step};
use kafka_protocol::messages::ApiKey;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, time::Duration};

/// A request's key, written as its name (`"EndTxn"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Api(i16);

impl Api {
    /// The key's number.
    pub fn key(self) -> i16 {
        self.0
    }
}

impl From<ApiKey> for Api {
    fn from(key: ApiKey) -> Self {
        Self(key as i16)
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ApiKey::try_from(self.0) {
            Ok(key) => write!(f, "{key:?}"),
            Err(()) => write!(f, "{}", self.0),
        }
    }
}

impl TryFrom<String> for Api {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        ApiKey::iter().find(|key| format!("{key:?}") == name).map(Self::from).ok_or_else(|| {
            format!("no request is called {name:?}; names are as in Kafka's protocol: \"EndTxn\"")
        })
    }
}

impl From<Api> for String {
    fn from(api: Api) -> Self {
        api.to_string()
    }
}

impl Serialize for Api {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Api {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Which requests a rule is for: all that is given must hold. What names a thing matches a request that names it
/// among others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct When {
    /// The request's key.
    pub api: Option<Api>,
    /// A topic that the request names; to a proxy, one named by its id counts once a Metadata answer has told its name.
    pub topic: Option<String>,
    /// A partition of it.
    pub partition: Option<i32>,
    /// The transactional id.
    pub transactional_id: Option<String>,
    /// The consumer group.
    pub group: Option<String>,
    /// What the client calls itself.
    pub client_id: Option<String>,
    /// The node that was asked.
    pub node: Option<i32>,
    /// Of EndTxn: does it commit?
    pub commit: Option<bool>,
    /// Does nothing before the n-th match, counted from one.
    pub nth: u64,
    /// How likely it acts on a match that is due.
    pub probability: Option<f64>,
    /// Where [`Self::probability`] takes its choices from.
    pub seed: u64,
}

impl Default for When {
    fn default() -> Self {
        Self {
            api: None,
            topic: None,
            partition: None,
            transactional_id: None,
            group: None,
            client_id: None,
            node: None,
            commit: None,
            nth: 1,
            probability: None,
            seed: 0,
        }
    }
}

/// What becomes of a connection whose answer does not come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Afterwards {
    /// It is closed.
    #[default]
    Close,
    /// It stays open, and nothing comes on it any more.
    Hang,
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The request is not applied and not answered.
    Drop(Afterwards),
    /// The request is applied and not answered.
    LoseAnswer(Afterwards),
    /// The connection is cut inside the answer's frame, after as many bytes of it (half of them if none are given).
    CutAnswer {
        /// How many bytes get through.
        #[serde(default)]
        after: Option<usize>,
    },
    /// Answered with an error code.
    Error {
        /// The code.
        code: i16,
        /// Is the request applied all the same?
        #[serde(default)]
        applied: bool,
    },
    /// The request is applied later.
    Delay {
        /// By as many milliseconds.
        ms: u64,
    },
    /// The request is applied at once and answered later.
    DelayAnswer {
        /// By as many milliseconds.
        ms: u64,
    },
    /// The node takes no request for a time, this one included, and gives no answer.
    StallNode {
        /// For as many milliseconds.
        ms: u64,
        /// The node; the one that was asked if none is given.
        #[serde(default)]
        node: Option<NodeId>,
    },
    /// Another node leads a partition before the request is applied.
    MoveLeader {
        /// The topic; the first that the request names if none is given.
        #[serde(default)]
        topic: Option<String>,
        /// The partition; the first that the request names, or 0.
        #[serde(default)]
        partition: Option<i32>,
        /// The new leader; the next node if none is given.
        #[serde(default)]
        to: Option<NodeId>,
    },
    /// Another node coordinates the request's transactional id, or else its group, before the request is applied.
    MoveCoordinator,
    /// The broker crashes and starts again: the request is not applied, every connection is cut.
    Crash,
    /// The request is applied, also one that waits, then the broker crashes and starts again: what was not synced may
    /// be lost, the answer is, and every connection is cut.
    CrashAfter,
    /// The broker's clock jumps forward before the request is applied.
    JumpClock {
        /// By as many milliseconds.
        ms: i64,
    },
    /// ApiVersions answers as an older broker.
    OldApiVersions {
        /// The highest version of a request that is advertised; a negative one takes the request away.
        #[serde(default)]
        highest: BTreeMap<Api, i16>,
        /// The finalized level of `transaction.version`.
        #[serde(default)]
        transaction_version: Option<i16>,
    },
    /// Any step of the machine before the request is applied.
    Step(Step),
}

impl Verdict {
    /// Does it decide what becomes of the request? A rule has one such verdict at most.
    pub(crate) fn is_fate(&self) -> bool {
        match self {
            Self::Drop(_)
            | Self::LoseAnswer(_)
            | Self::CutAnswer { .. }
            | Self::Error { .. }
            | Self::Crash
            | Self::CrashAfter => true,
            Self::Delay { .. }
            | Self::DelayAnswer { .. }
            | Self::StallNode { .. }
            | Self::MoveLeader { .. }
            | Self::MoveCoordinator
            | Self::JumpClock { .. }
            | Self::OldApiVersions { .. }
            | Self::Step(_) => false,
        }
    }

    /// Does it act on the machine, which a proxy does not have?
    pub(crate) fn needs_machine(&self) -> bool {
        match self {
            Self::MoveLeader { .. }
            | Self::MoveCoordinator
            | Self::Crash
            | Self::CrashAfter
            | Self::JumpClock { .. }
            | Self::Step(_) => true,
            Self::Drop(_)
            | Self::LoseAnswer(_)
            | Self::CutAnswer { .. }
            | Self::Error { .. }
            | Self::Delay { .. }
            | Self::DelayAnswer { .. }
            | Self::StallNode { .. }
            | Self::OldApiVersions { .. } => false,
        }
    }
}

/// A rule. Made for Rust with [`Rule::on`] and what follows it:
///
/// ```
/// use hapax_broker::{ApiKey, Afterwards, Rule};
/// let rule = Rule::on(ApiKey::EndTxn).transactional_id("orders").nth(2).lose_answer(Afterwards::Close);
/// assert_eq!(
///     serde_json::to_value(&rule).expect("a rule is plain data")["then"],
///     serde_json::json!([{"lose_answer": "close"}]),
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What reports call it.
    #[serde(default)]
    pub name: Option<String>,
    /// Which requests it is for.
    #[serde(default)]
    pub when: When,
    /// What it does: acts in this order, one fate at most.
    pub then: Vec<Verdict>,
    /// How often it acts; without limit if null. Once if not given.
    #[serde(default = "once")]
    pub times: Option<u32>,
}

fn once() -> Option<u32> {
    Some(1)
}

impl Rule {
    /// A rule for a kind of request, which acts once.
    pub fn on(api: ApiKey) -> Self {
        let mut rule = Self::on_any();
        rule.when.api = Some(api.into());
        rule
    }

    /// A rule for every request, which acts once.
    pub fn on_any() -> Self {
        Self { times: once(), ..Self::default() }
    }

    /// Names it in reports.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only requests that name this topic.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.when.topic = Some(topic.into());
        self
    }

    /// Only requests that name this partition.
    #[must_use]
    pub fn partition(mut self, partition: i32) -> Self {
        self.when.partition = Some(partition);
        self
    }

    /// Only requests of this transactional id.
    #[must_use]
    pub fn transactional_id(mut self, id: impl Into<String>) -> Self {
        self.when.transactional_id = Some(id.into());
        self
    }

    /// Only requests about this consumer group.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.when.group = Some(group.into());
        self
    }

    /// Only requests of a client that calls itself so.
    #[must_use]
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.when.client_id = Some(id.into());
        self
    }

    /// Only requests to this node.
    #[must_use]
    pub fn node(mut self, node: i32) -> Self {
        self.when.node = Some(node);
        self
    }

    /// Only an EndTxn that commits (`true`) or aborts.
    #[must_use]
    pub fn commit(mut self, commit: bool) -> Self {
        self.when.commit = Some(commit);
        self
    }

    /// Not before the n-th match, counted from one.
    #[must_use]
    pub fn nth(mut self, nth: u64) -> Self {
        self.when.nth = nth;
        self
    }

    /// By chance, drawn from a seed.
    #[must_use]
    pub fn probability(mut self, probability: f64, seed: u64) -> Self {
        self.when.probability = Some(probability);
        self.when.seed = seed;
        self
    }

    /// Acts as often as this.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Acts on every match.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.times = None;
        self
    }

    /// Does this, after what was said before.
    #[must_use]
    pub fn then(mut self, verdict: Verdict) -> Self {
        self.then.push(verdict);
        self
    }

    /// Neither applies nor answers the request.
    #[must_use]
    pub fn drop_request(self, fate: Afterwards) -> Self {
        self.then(Verdict::Drop(fate))
    }

    /// Applies the request and loses the answer.
    #[must_use]
    pub fn lose_answer(self, fate: Afterwards) -> Self {
        self.then(Verdict::LoseAnswer(fate))
    }

    /// Answers with an error instead of applying the request.
    #[must_use]
    pub fn error(self, code: i16) -> Self {
        self.then(Verdict::Error { code, applied: false })
    }

    /// Applies the request and answers with an error all the same.
    #[must_use]
    pub fn error_although_applied(self, code: i16) -> Self {
        self.then(Verdict::Error { code, applied: true })
    }

    /// Applies the request later.
    #[must_use]
    pub fn delay(self, by: Duration) -> Self {
        self.then(Verdict::Delay { ms: u64::try_from(by.as_millis()).unwrap_or(u64::MAX) })
    }
}
