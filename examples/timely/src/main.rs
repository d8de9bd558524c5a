//! A timely dataflow of two processes that writes the numbers from 0 on into a topic, each once.
//!
//! ```text
//! numbers --exchange--> prepare (each worker's lane) --to worker 0--> decide --broadcast--> commit (each worker's lane)
//!   time = epoch          when the frontier has passed        one create-only file            when it has decided
//! ```
//!
//! Worker 0 keeps the checkpoint. It recovers all lanes before anybody writes, and tells the others where to go on. Kill
//! either process at any moment, and start both again.
//!
//! ```text
//! engine-timely BROKERS TOPIC FOLDER COUNT -w 1 -n 2 -p PROCESS -h HOSTFILE
//! ```

mod sink;
mod store;

use hapax::{cluster::Cluster, engine::KafkaSink};
use serde::{Deserialize, Serialize};
use sink::Sink;
use std::{cell::RefCell, path::PathBuf, rc::Rc};
use store::Store;
use timely::{
    container::CapacityContainerBuilder,
    dataflow::{
        InputHandle, ProbeHandle,
        channels::pact::{Exchange, Pipeline},
        operators::{Input, Inspect, Probe, generic::operator::Operator, vec::Broadcast},
    },
    worker::Worker,
};

/// Records on their way between operators.
type Batches<D> = CapacityContainerBuilder<Vec<D>>;

/// Numbers in an epoch, over all workers.
const EPOCH: u64 = 100;

#[derive(Clone)]
struct Arguments {
    brokers: String,
    topic: String,
    folder: PathBuf,
    count: u64,
}

/// Where every worker goes on, as worker 0 says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Start {
    generation: u64,
    epoch: u64,
}

fn main() {
    let all: Vec<String> = std::env::args().collect();
    let [_, brokers, topic, folder, count, timely @ ..] = &all[..] else {
        panic!("engine-timely BROKERS TOPIC FOLDER COUNT -w 1 -n 2 -p PROCESS -h HOSTFILE");
    };
    let arguments = Arguments {
        brokers: brokers.clone(),
        topic: topic.clone(),
        folder: folder.into(),
        count: count.parse().expect("COUNT is a number"),
    };
    let run = move |worker: &mut Worker| run(worker, &arguments);
    timely::execute_from_args(timely.iter().cloned(), run).expect("the arguments behind COUNT are timely's");
}

fn run(worker: &mut Worker, arguments: &Arguments) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = Rc::new(runtime.expect("a runtime"));
    let cluster = Cluster::named("main", &arguments.brokers).expect("addresses");
    let sink = KafkaSink::builder(cluster).job(&arguments.topic).exactly_once().expect("a legal name");
    let (index, peers) = (worker.index(), worker.peers());
    let shards = 0..u32::try_from(peers).expect("few workers");
    let mut store = (index == 0).then(|| {
        let mut store = Store::begin(&arguments.folder, &sink.ids(shards)).expect("the folder");
        runtime.block_on(recover(&sink, &mut store));
        store
    });
    let here =
        store.as_ref().map(|store| Start { generation: store.saved.generation, epoch: store.saved.epoch });
    let start = told(worker, here);
    if index != 0 {
        runtime.block_on(clear_own(&sink, index, start.generation));
    }
    let lane = runtime.block_on(sink.lane(u32::try_from(index).expect("few workers"))).expect("a lane");
    let lane = Rc::new(RefCell::new(Sink::new(lane, runtime, arguments.topic.clone())));
    let (mut input, probe) = dataflow(worker, &lane, store.take());
    for epoch in start.epoch + 1..=arguments.count.div_ceil(EPOCH) {
        input.advance_to(epoch);
        // Not every number is made where it is written.
        (epoch * EPOCH - EPOCH..epoch * EPOCH)
            .filter(|number| (number / 7) as usize % peers == index)
            .for_each(|number| input.send(number));
        input.advance_to(epoch + 1);
        worker.step_while(|| probe.less_than(input.time()));
    }
}

/// Commits what earlier runs have decided; stores what is left each time.
async fn recover(sink: &KafkaSink, store: &mut Store) {
    for _ in 0..2 {
        let report = sink.recover(&store.decided(), &store.saved.ids, store.run()).await.expect("recovery");
        store.saved.handles = report.left().into_iter().map(sink::bytes).collect();
        store.put().expect("the folder");
        if report.is_settled() {
            return report.recorded().await.expect("clearing");
        }
    }
    panic!("a decided transaction is not committed: its handle is in the folder, a person must look");
}

/// The identities of a lane belong to the process that cleared its ids: worker 0 has resolved, this one only begins.
async fn clear_own(sink: &KafkaSink, index: usize, generation: u64) {
    let ids = sink.ids([u32::try_from(index).expect("few workers")]);
    let none: [hapax::engine::Known; 0] = [];
    let report = sink.recover(&none, &ids, generation).await.expect("clearing");
    report.recorded().await.expect("nothing is in doubt");
}

/// Worker 0's start, at every worker.
fn told(worker: &mut Worker, here: Option<Start>) -> Start {
    let told = Rc::new(RefCell::new(None));
    let mut input = InputHandle::<u64, Batches<Start>>::new();
    let heard = told.clone();
    worker.dataflow(|scope| {
        let starts = scope.input_from(&mut input).broadcast();
        starts.inspect(move |start| *heard.borrow_mut() = Some(*start));
    });
    here.into_iter().for_each(|start| input.send(start));
    input.close();
    worker.step_while(|| told.borrow().is_none());
    told.take().expect("just seen")
}

/// Input, and a probe behind the commits.
fn dataflow(
    worker: &mut Worker,
    lane: &Rc<RefCell<Sink>>,
    store: Option<Store>,
) -> (InputHandle<u64, Batches<u64>>, ProbeHandle<u64>) {
    let mut input = InputHandle::new();
    let probe = ProbeHandle::new();
    let (preparing, committing) = (lane.clone(), lane.clone());
    worker.dataflow::<u64, _, _>(|scope| {
        scope
            .input_from(&mut input)
            .unary_frontier::<Batches<(u64, Vec<u8>)>, _, _, _>(
                Exchange::new(|number| *number),
                "prepare",
                |_, _| {
                    let mut epochs = std::collections::BTreeMap::new();
                    move |(input, frontier), output| {
                        input.for_each(|cap, numbers| {
                            if let Some(cap) = cap.retain_least(0) {
                                let at = *cap.time();
                                epochs.entry(at).or_insert_with(|| (cap, Vec::new())).1.append(numbers);
                            }
                        });
                        while let Some(epoch) = epochs.first_entry() {
                            if frontier.frontier().less_equal(epoch.key()) {
                                break;
                            }
                            let (epoch, (cap, numbers)) = epoch.remove_entry();
                            let handle = preparing.borrow_mut().prepare(epoch, numbers);
                            output.session(&cap).give((epoch, handle));
                        }
                    }
                },
            )
            .unary_frontier::<Batches<u64>, _, _, _>(Exchange::new(|_| 0), "decide", |_, _| {
                let (mut store, mut shares) = (store, std::collections::BTreeMap::new());
                move |(input, frontier), output| {
                    input.for_each(|cap, handles| {
                        if let Some(cap) = cap.retain_least(0) {
                            let at = *cap.time();
                            shares.entry(at).or_insert_with(|| (cap, Vec::new())).1.append(handles);
                        }
                    });
                    while let Some(share) = shares.first_entry() {
                        if frontier.frontier().less_equal(share.key()) {
                            break;
                        }
                        let (epoch, (cap, handles)) = share.remove_entry();
                        let store = store.as_mut().expect("shares go to worker 0");
                        store.saved.epoch = epoch;
                        store.saved.handles = handles.into_iter().map(|(_, handle)| handle).collect();
                        store.put().expect("no newer run, and a folder");
                        output.session(&cap).give(epoch);
                    }
                }
            })
            .broadcast()
            .unary::<Batches<u64>, _, _, _>(Pipeline, "commit", |_, _| {
                move |input, output| {
                    input.for_each(|cap, decided| {
                        for epoch in decided.drain(..) {
                            committing.borrow_mut().commit(epoch);
                            output.session(&cap).give(epoch);
                        }
                    });
                }
            })
            .probe_with(&probe);
    });
    (input, probe)
}
