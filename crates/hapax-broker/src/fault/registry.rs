//! The rules that are in force, and how often each matched and acted.

use super::{
    rule::{Rule, Verdict},
    subject::{Names, Subject},
};
use crate::wire::{Request, Response, frame::Head};
use kafka_protocol::messages::ApiKey;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The most rules in force at once: each request is held against all of them.
const MOST_RULES: usize = 10_000;

/// Where rules are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In front of the machine.
    Broker,
    /// In front of a real cluster.
    Proxy,
}

/// Names a rule while it is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RuleId(pub u64);

/// A rule, and what it did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleReport {
    /// Its number.
    pub id: RuleId,
    /// How many requests matched it.
    pub matched: u64,
    /// How often it acted.
    pub fired: u64,
    /// The rule.
    pub rule: Rule,
}

/// A rule that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule refused: {0}")]
pub struct Invalid(String);

/// The rules in force. Cheap to clone; clones are the same rules.
#[derive(Clone, Debug)]
pub struct Faults(Arc<Mutex<Rules>>);

#[derive(Debug)]
struct Rules {
    place: Place,
    next: u64,
    live: BTreeMap<RuleId, Live>,
    names: Names,
}

#[derive(Debug)]
struct Live {
    rule: Rule,
    matched: u64,
    fired: u64,
    random: fastrand::Rng,
}

/// What a rule does beside deciding the fate of the request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Act {
    pub(crate) rule: RuleId,
    pub(crate) verdict: Verdict,
}

/// What is to be done with a request.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// In this order, before the request is applied; waits and changes of the answer are among them.
    pub(crate) acts: Vec<Act>,
    /// What becomes of the request, if not the usual.
    pub(crate) fate: Option<Verdict>,
}

impl Faults {
    pub(crate) fn new(place: Place) -> Self {
        let rules = Rules { place, next: 1, live: BTreeMap::new(), names: Names::default() };
        Self(Arc::new(Mutex::new(rules)))
    }

    /// Puts a rule in force.
    ///
    /// # Errors
    /// It contradicts itself, or asks for what there is not at this place.
    pub fn add(&self, rule: Rule) -> Result<RuleId, Invalid> {
        let mut rules = self.rules();
        check(&rule, rules.place)?;
        if rules.live.len() >= MOST_RULES {
            return Err(Invalid(format!("{MOST_RULES} rules are in force; take some away first")));
        }
        let id = RuleId(rules.next);
        rules.next += 1;
        let random = fastrand::Rng::with_seed(rule.when.seed);
        rules.live.insert(id, Live { rule, matched: 0, fired: 0, random });
        Ok(id)
    }

    /// Puts a rule in force as long as the guard lives; the guard panics at its end if the rule never acted.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn guard(&self, rule: Rule) -> Result<RuleGuard, Invalid> {
        Ok(RuleGuard { id: self.add(rule)?, faults: self.clone() })
    }

    /// Takes a rule away; its last report, if it was in force.
    pub fn remove(&self, id: RuleId) -> Option<RuleReport> {
        self.rules().live.remove(&id).map(|live| live.report(id))
    }

    /// Takes every rule away.
    pub fn clear(&self) {
        self.rules().live.clear();
    }

    /// The rules in force, in the order in which they were added.
    pub fn list(&self) -> Vec<RuleReport> {
        self.rules().live.iter().map(|(id, live)| live.report(*id)).collect()
    }

    /// What a rule did so far.
    pub fn report(&self, id: RuleId) -> Option<RuleReport> {
        self.rules().live.get(&id).map(|live| live.report(id))
    }

    /// The rules that never acted.
    pub fn unfired(&self) -> Vec<RuleReport> {
        self.list().into_iter().filter(|report| report.fired == 0).collect()
    }

    /// Holds a request against the rules, where there are any; one that nobody could decode by its key alone.
    pub(crate) fn judge(&self, head: &Head, request: Option<&Request>, node: i32) -> Option<(Subject, Plan)> {
        let mut rules = self.rules();
        if rules.live.is_empty() {
            return None;
        }
        let client_id = head.client_id.clone();
        let subject = match request {
            Some(request) => Subject::of(request, node, client_id, &rules.names),
            None => Subject::opaque(head.key, node, client_id),
        };
        let plan = rules.judge(&subject);
        Some((subject, plan))
    }

    /// A rule came to its turn and there was nothing for it to do: it has not acted.
    pub(crate) fn did_nothing(&self, id: RuleId, why: &str) {
        tracing::warn!(rule = id.0, why, "a rule had nothing to act on");
        if let Some(live) = self.rules().live.get_mut(&id) {
            live.fired = live.fired.saturating_sub(1);
        }
    }

    /// Learns names of topics from an answer.
    pub(crate) fn learn(&self, response: &Response) {
        if matches!(response, Response::Metadata(_) | Response::CreateTopics(_)) {
            self.rules().names.learn(response);
        }
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        // A test that panics while it holds the lock has changed no rule half.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rules {
    fn judge(&mut self, subject: &Subject) -> Plan {
        let mut plan = Plan::default();
        for (id, live) in &mut self.live {
            if !matches(&live.rule, subject) {
                continue;
            }
            live.matched += 1;
            let decides = live.rule.then.iter().any(Verdict::is_fate);
            if !live.is_due() || decides && plan.fate.is_some() || !live.chance() {
                continue;
            }
            live.fired += 1;
            for verdict in &live.rule.then {
                if verdict.is_fate() {
                    plan.fate = Some(verdict.clone());
                } else {
                    plan.acts.push(Act { rule: *id, verdict: verdict.clone() });
                }
            }
        }
        plan
    }
}

impl Live {
    fn is_due(&self) -> bool {
        self.matched >= self.rule.when.nth
            && self.rule.times.is_none_or(|times| self.fired < u64::from(times))
    }

    fn chance(&mut self) -> bool {
        self.rule.when.probability.is_none_or(|probability| self.random.f64() < probability)
    }

    fn report(&self, id: RuleId) -> RuleReport {
        RuleReport { id, matched: self.matched, fired: self.fired, rule: self.rule.clone() }
    }
}

fn matches(rule: &Rule, subject: &Subject) -> bool {
    let when = &rule.when;
    let topic = match (&when.topic, when.partition) {
        (None, None) => true,
        (name, partition) => subject.topics.iter().any(|(topic, partitions)| {
            name.as_ref().is_none_or(|name| name == topic)
                && partition.is_none_or(|partition| partitions.contains(&partition))
        }),
    };
    topic
        && when.api.is_none_or(|api| api.key() == subject.key)
        && when.transactional_id.as_ref().is_none_or(|id| subject.transactional_ids.contains(id))
        && when.group.as_ref().is_none_or(|group| subject.groups.contains(group))
        && when.client_id.as_ref().is_none_or(|id| subject.client_id.as_ref() == Some(id))
        && when.node.is_none_or(|node| node == subject.node)
        && when.commit.is_none_or(|commit| subject.commit == Some(commit))
}

fn check(rule: &Rule, place: Place) -> Result<(), Invalid> {
    let refuse = |why: &str| Err(Invalid(why.to_owned()));
    if rule.then.is_empty() {
        return refuse("\"then\" is empty, so it would do nothing");
    }
    if rule.then.iter().filter(|verdict| verdict.is_fate()).count() > 1 {
        return refuse(
            "\"then\" has two fates for one request; drop, lose_answer, cut_answer, error, crash and \
                       crash_after exclude each other",
        );
    }
    if rule.when.probability.is_some_and(|probability| !(0.0..=1.0).contains(&probability)) {
        return refuse("\"probability\" is not between 0 and 1");
    }
    if rule.times == Some(0) {
        return refuse("\"times\" is 0, so it would do nothing; null is without limit");
    }
    let is_of_versions = |verdict: &Verdict| matches!(verdict, Verdict::OldApiVersions { .. });
    if rule.then.iter().any(is_of_versions) && rule.when.api != Some(ApiKey::ApiVersions.into()) {
        return refuse(
            "old_api_versions changes the answer to ApiVersions alone: give \"api\": \"ApiVersions\"",
        );
    }
    if place == Place::Proxy
        && let Some(verdict) = rule.then.iter().find(|verdict| verdict.needs_machine())
    {
        let verdict = serde_json::to_string(verdict).unwrap_or_default();
        return Err(Invalid(format!(
            "{verdict} acts on the embedded broker; a proxy cannot do that to the cluster behind it"
        )));
    }
    Ok(())
}

/// Keeps a rule in force and insists that it acts.
///
/// # Panics
/// When dropped, if the rule never acted: a test that injects a fault proves nothing where the fault did not happen.
/// Not while another panic unwinds.
#[derive(Debug)]
#[must_use = "the rule ends with its guard"]
pub struct RuleGuard {
    id: RuleId,
    faults: Faults,
}

impl RuleGuard {
    /// How often the rule acted so far.
    pub fn fired(&self) -> u64 {
        self.faults.report(self.id).map_or(0, |report| report.fired)
    }

    /// How many requests matched it so far.
    pub fn matched(&self) -> u64 {
        self.faults.report(self.id).map_or(0, |report| report.matched)
    }
}

impl Drop for RuleGuard {
    fn drop(&mut self) {
        let Some(report) = self.faults.remove(self.id) else { return };
        if report.fired == 0 && !std::thread::panicking() {
            let rule = serde_json::to_string(&report.rule).unwrap_or_default();
            panic!("a fault never happened ({} requests matched): {rule}", report.matched);
        }
    }
}
