//! One worker's lane, driven from operators that know nothing of futures.

use hapax::engine::{Handle, Known, Lane, Outcome, Proof, Record};
use std::rc::Rc;
use tokio::runtime::Runtime;

pub struct Sink {
    lane: Lane,
    runtime: Rc<Runtime>,
    topic: String,
    /// The transaction that is prepared, by its epoch.
    prepared: Option<(u64, Handle)>,
    /// Of the epoch before: recorded when a checkpoint without its handle is decided.
    proof: Option<Proof>,
}

impl Sink {
    pub fn new(lane: Lane, runtime: Rc<Runtime>, topic: String) -> Self {
        Self { lane, runtime, topic, prepared: None, proof: None }
    }

    /// The frontier has passed the epoch: all its numbers are here.
    pub fn prepare(&mut self, epoch: u64, mut numbers: Vec<u64>) -> Vec<u8> {
        numbers.sort_unstable();
        let (lane, topic) = (&mut self.lane, &self.topic);
        let handle = self.runtime.block_on(async {
            for number in numbers {
                let (key, value) = (number.to_string(), format!("{{\"id\":{number}}}"));
                let partition = i32::try_from(number % 2).expect("below two");
                lane.write(Record::to(topic).key(&key).value(&value).partition(partition)).await?;
            }
            lane.prepare(epoch).await
        });
        let handle = handle.expect("brokers take the records").expect("an epoch has numbers");
        let bytes = handle.to_bytes();
        self.prepared = Some((epoch, handle));
        bytes
    }

    /// Worker 0 has decided the epoch, and its checkpoint names nothing of the one before.
    pub fn commit(&mut self, epoch: u64) {
        if let Some(proof) = self.proof.take() {
            self.lane.recorded(proof);
        }
        let (prepared, handle) = self.prepared.take().expect("an epoch is prepared before it is decided");
        assert_eq!(prepared, epoch, "one epoch at a time");
        match self.runtime.block_on(self.lane.commit(&handle)).expect("the handle is this lane's") {
            Outcome::Committed(proof) => self.proof = Some(proof),
            other => panic!("the next run recovers: {other:?}"),
        }
    }
}

/// A handle as it is stored.
pub fn bytes(known: Known) -> Vec<u8> {
    match known {
        Known::Handle(handle) => handle.to_bytes(),
        Known::IdOnly(known) => unreachable!("{} was stored without a handle", known.transactional_id),
    }
}
