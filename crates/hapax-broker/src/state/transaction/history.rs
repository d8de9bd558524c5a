//! Random histories: whatever two producers, operators and time do, each decision is carried out once and for all, and
//! when all is quiet nothing is left open.

use super::AppendFault;
use crate::{
    batch::marker_of,
    state::{
        Settings, Step,
        probe::{Probe, Produced, answer_of, headers, only, produce_request},
    },
    wire::Response,
};
use kafka_protocol::{
    messages::{EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest, TransactionalId},
    protocol::StrBytes,
};
use std::collections::BTreeMap;

/// A client that holds a producer id and epoch, perhaps a stale one.
#[derive(Clone, Copy, Default)]
struct Client {
    id: i64,
    epoch: i16,
    sequence: i32,
}

struct History {
    probe: Probe,
    random: fastrand::Rng,
    clients: [Client; 2],
    /// What was answered to the end of a producer's transaction.
    decided: BTreeMap<(i64, i16), bool>,
}

fn tid() -> TransactionalId {
    TransactionalId(StrBytes::from_static_str("x"))
}

impl History {
    fn new(seed: u64) -> Self {
        let mut probe = Probe::with(Settings { seed, max_message_bytes: 1 << 20, ..Settings::default() });
        probe.topic("t", 1, &[]);
        let find =
            FindCoordinatorRequest::default().with_key_type(1).with_key(StrBytes::from_static_str("x"));
        probe.ask(3, find);
        let random = fastrand::Rng::with_seed(seed);
        Self { probe, random, clients: [Client::default(); 2], decided: BTreeMap::new() }
    }

    fn act(&mut self) {
        let who = self.random.usize(..2);
        match self.random.u8(..20) {
            0..=2 => self.initialize(who),
            3..=9 => self.write(who),
            10..=14 => self.end(who),
            15 => drop(self.probe.act(Step::HoldMarkers(self.random.bool()))),
            16 => drop(self.probe.act(Step::MoveCoordinator { transactional_id: "x".to_owned() })),
            17 => drop(self.probe.act(Step::Crash)),
            18 => {
                let fault = AppendFault { written: self.random.bool(), code: 15 };
                self.probe.act(Step::FailAppend { transactional_id: "x".to_owned(), fault });
            }
            _ => drop(self.probe.pass(self.random.i64(1..400))),
        }
        self.probe.pass(self.random.i64(0..5));
    }

    fn initialize(&mut self, who: usize) {
        let client = self.clients[who];
        let (id, epoch) = if self.random.bool() { (client.id, client.epoch) } else { (-1, -1) };
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(tid()))
            .with_transaction_timeout_ms(1_000)
            .with_producer_id(id.into())
            .with_producer_epoch(epoch);
        let Response::InitProducerId(told) = self.probe.ask(5, request) else { panic!() };
        if told.error_code == 0 {
            self.clients[who] = Client { id: told.producer_id.0, epoch: told.producer_epoch, sequence: 0 };
        }
    }

    fn write(&mut self, who: usize) {
        let Client { id, epoch, sequence } = self.clients[who];
        let batch = Produced { transactional: true, ..Produced::idempotent(id, epoch, sequence, 1) };
        let request = produce_request("t", batch.bytes(), Some("x"));
        let (ticket, mut replies) = self.probe.send(12, request);
        replies.extend(self.probe.pass(200));
        let answer = answer_of(ticket, &replies).expect("answered in time");
        if only(answer).error_code == 0 {
            // Also after the decision, until the marker is written: the partition does not ask again, and the marker
            // decides about this record too.
            self.clients[who].sequence += 1;
        }
    }

    fn end(&mut self, who: usize) {
        let Client { id, epoch, .. } = self.clients[who];
        let commit = self.random.bool();
        let request = EndTxnRequest::default()
            .with_transactional_id(tid())
            .with_producer_id(id.into())
            .with_producer_epoch(epoch)
            .with_committed(commit);
        let Response::EndTxn(told) = self.probe.ask(5, request) else { panic!() };
        if told.error_code == 0 {
            let before = self.decided.insert((id, epoch), commit);
            assert!(before.is_none_or(|before| before == commit), "decided both ways");
            self.clients[who] = Client { id: told.producer_id.0, epoch: told.producer_epoch, sequence: 0 };
        }
    }

    /// All faults end, and time passes.
    fn heal(&mut self) {
        self.probe.act(Step::HoldMarkers(false));
        self.probe.act(Step::MoveCoordinator { transactional_id: "x".to_owned() });
        self.probe.pass(100);
        self.probe.pass(3_000);
        self.probe.pass(100);
    }
}

#[test]
fn every_history_ends_with_nothing_open_and_each_decision_kept() {
    for seed in 0..60 {
        let mut history = History::new(seed);
        for _ in 0..120 {
            history.act();
        }
        history.heal();
        let log = &history.probe.machine.catalog.partition("t", 0).unwrap().log;
        assert_eq!(log.last_stable(), log.end(), "seed {seed}: a transaction is still open");
        let mut outcomes: BTreeMap<(i64, i16), bool> = BTreeMap::new();
        let fetched = history.probe.fetch("t", 0, false);
        let mut open: BTreeMap<i64, i16> = BTreeMap::new();
        let records = fetched.records.unwrap();
        let mut rest = &records[..];
        for header in headers(&records) {
            let (batch, behind) = rest.split_at(header.size);
            rest = behind;
            if let Some((commit, _)) = marker_of(batch, &header) {
                if let Some(epoch) = open.remove(&header.producer_id) {
                    outcomes.insert((header.producer_id, epoch), commit);
                }
            } else {
                open.insert(header.producer_id, header.producer_epoch);
            }
        }
        for (producer, commit) in &history.decided {
            let written = outcomes.get(producer);
            assert!(written.is_none_or(|written| written == commit), "seed {seed}: {producer:?}");
        }
    }
}

#[test]
fn one_seed_is_one_history() {
    let run = |seed| {
        let mut history = History::new(seed);
        (0..80).for_each(|_| history.act());
        history.heal();
        let machine = &history.probe.machine;
        let at = machine.state_partition("x");
        machine.catalog.partition("__transaction_state", at).unwrap().log.records().collect::<Vec<_>>()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
