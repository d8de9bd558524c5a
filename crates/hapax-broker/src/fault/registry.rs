//! The rules that are in force, and how often each matched and acted.

use super::{
    plan::{Act, Plan, Turn},
    rule::{Rule, Verdict},
    subject::Subject,
};
use crate::{
    state::LONGEST_MS,
    wire::{Request, frame::Head},
};
use kafka_protocol::messages::ApiKey;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use uuid::Uuid;

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
pub(super) struct Rules {
    place: Place,
    next: u64,
    live: BTreeMap<RuleId, Live>,
}

#[derive(Debug)]
struct Live {
    rule: Rule,
    matched: u64,
    fired: u64,
    /// Turns that it has and that are not over: of those that are, it fired in some.
    turns: u64,
    random: fastrand::Rng,
}

impl Faults {
    pub(crate) fn new(place: Place) -> Self {
        let rules = Rules { place, next: 1, live: BTreeMap::new() };
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
        rules.live.insert(id, Live { rule, matched: 0, fired: 0, turns: 0, random });
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

    /// Holds a request against the rules, where there are any; one that nobody could decode by its key alone. `names`
    /// tells the name of a topic that the request names by its id.
    pub(crate) fn judge(
        &self,
        head: &Head,
        request: Option<&Request>,
        node: i32,
        names: &dyn Fn(Uuid) -> Option<String>,
    ) -> Option<(Subject, Plan)> {
        if self.rules().live.is_empty() {
            return None;
        }
        let client_id = head.client_id.clone();
        // Not under the lock: names may be behind another one.
        let subject = match request {
            Some(request) => Subject::of(request, node, client_id, names),
            None => Subject::opaque(head.key, node, client_id),
        };
        let due = self.rules().due(&subject);
        let mut plan = Plan::default();
        for (id, verdicts) in due {
            let turn = Turn::new(Arc::clone(&self.0), id);
            for verdict in verdicts {
                let act = Act { turn: turn.clone(), verdict };
                match act.verdict.is_fate() {
                    true => plan.fate = Some(act),
                    false => plan.acts.push(act),
                }
            }
        }
        Some((subject, plan))
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        // A test that panics while it holds the lock has changed no rule half.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rules {
    /// The rules that have a turn at a request, and what they do; one of them at most decides its fate.
    fn due(&mut self, subject: &Subject) -> Vec<(RuleId, Vec<Verdict>)> {
        let mut due = Vec::new();
        let mut decided = false;
        for (id, live) in &mut self.live {
            if !matches(&live.rule, subject) {
                continue;
            }
            live.matched += 1;
            let decides = live.rule.then.iter().any(Verdict::is_fate);
            if !live.is_due() || decides && decided || !live.chance() {
                continue;
            }
            decided |= decides;
            live.turns += 1;
            due.push((*id, live.rule.then.clone()));
        }
        due
    }

    pub(super) fn end_turn(&mut self, id: RuleId, acted: bool) {
        if let Some(live) = self.live.get_mut(&id) {
            live.turns -= 1;
            live.fired += u64::from(acted);
        }
    }
}

impl Live {
    fn is_due(&self) -> bool {
        self.matched >= self.rule.when.nth
            && self.rule.times.is_none_or(|times| self.fired + self.turns < u64::from(times))
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
    if rule.when.nth == 0 {
        return refuse("\"nth\" is 0; the first match is 1");
    }
    if rule.when.probability.is_some_and(|probability| !(probability > 0.0 && probability <= 1.0)) {
        return refuse(
            "\"probability\" is not above 0 and up to 1, so it would do nothing or makes no sense",
        );
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
    if let Some(why) = rule.then.iter().find_map(out_of_range) {
        return Err(Invalid(why));
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

/// What is wrong with a time that a verdict gives, or with a change that is none.
fn out_of_range(verdict: &Verdict) -> Option<String> {
    let (name, ms) = match verdict {
        Verdict::Delay { ms } => ("delay", i64::try_from(*ms)),
        Verdict::DelayAnswer { ms } => ("delay_answer", i64::try_from(*ms)),
        Verdict::StallNode { ms, .. } => ("stall_node", i64::try_from(*ms)),
        Verdict::JumpClock { ms } => ("jump_clock", Ok(*ms)),
        Verdict::OldApiVersions { highest, transaction_version: None } if highest.is_empty() => {
            return Some("old_api_versions lowers nothing".to_owned());
        }
        Verdict::OldApiVersions { .. }
        | Verdict::Drop(_)
        | Verdict::LoseAnswer(_)
        | Verdict::CutAnswer { .. }
        | Verdict::Error { .. }
        | Verdict::MoveLeader { .. }
        | Verdict::MoveCoordinator
        | Verdict::Crash
        | Verdict::CrashAfter
        | Verdict::Step(_) => return None,
    };
    let fits = ms.is_ok_and(|ms| (1..=LONGEST_MS).contains(&ms));
    (!fits).then(|| format!("\"ms\" of {name} is not between 1 and {LONGEST_MS} (100 years)"))
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
