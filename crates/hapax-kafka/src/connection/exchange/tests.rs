use super::*;
use tokio::sync::oneshot::Receiver;

const SECOND: Duration = Duration::from_secs(1);

struct Waiter {
    answer: Receiver<Answer>,
    written: Receiver<Result<(), CallError>>,
}

struct World {
    exchange: Exchange,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let now = hapax_host::Host::real().now();
        Self { exchange: Exchange::new(NodeId(1), now), now }
    }

    fn enqueue(&mut self, timeout: Duration, bytes: usize) -> Waiter {
        let (answer_to, answer) = oneshot::channel();
        let (written_to, written) = oneshot::channel();
        let deadline = self.now + timeout;
        let ticket = Ticket {
            api: "EndTxn",
            response_header: 0,
            deadline,
            timeout,
            answer: answer_to,
            written: Some(written_to),
        };
        let body = vec![Bytes::from(vec![0; bytes])];
        self.exchange.enqueue(self.now, ticket, body, |_| Some(Bytes::from_static(b"head")));
        Waiter { answer, written }
    }

    fn take(&mut self) -> u64 {
        let mut chunks = VecDeque::new();
        self.exchange.take(&mut chunks);
        chunks.iter().map(|chunk| chunk.len() as u64).sum()
    }

    fn answer(&mut self, correlation_id: i32) -> Result<(), Cause> {
        let mut frame = correlation_id.to_be_bytes().to_vec();
        frame.push(42);
        self.exchange.answered(self.now, frame.into())
    }
}

fn fate(waiter: &mut Waiter) -> Result<Bytes, CallError> {
    waiter.answer.try_recv().expect("the request has left the book")
}

#[test]
fn answers_reach_their_requests_in_order() {
    let mut world = World::new();
    let mut waiters = [world.enqueue(SECOND, 5), world.enqueue(SECOND, 5)];
    let taken = world.take();
    assert_eq!(taken, 18);
    world.exchange.handed(taken);
    for (id, waiter) in waiters.iter_mut().enumerate() {
        world.answer(i32::try_from(id).unwrap()).unwrap();
        assert_eq!(fate(waiter).unwrap(), [42][..]);
        waiter.written.try_recv().unwrap().unwrap();
    }
}

#[test]
fn an_answer_to_another_request_ends_the_trust_in_the_connection() {
    let mut world = World::new();
    let _first = world.enqueue(SECOND, 5);
    let _second = world.enqueue(SECOND, 5);
    let taken = world.take();
    world.exchange.handed(taken);
    assert!(world.answer(1).is_err());
}

#[test]
fn an_answer_before_its_request_was_written_is_not_believed() {
    let mut world = World::new();
    let _first = world.enqueue(SECOND, 5);
    world.take();
    assert!(world.answer(0).is_err());
}

#[test]
fn only_what_the_socket_took_no_byte_of_counts_as_not_sent() {
    let mut world = World::new();
    let mut whole = world.enqueue(SECOND, 5);
    let mut partly = world.enqueue(SECOND, 5);
    let mut taken = world.enqueue(SECOND, 5);
    world.take();
    let mut queued = world.enqueue(SECOND, 5);
    world.exchange.handed(10);
    world.exchange.close(world.now, Cause::Lost("gone".into()));
    for waiter in [&mut whole, &mut partly] {
        assert!(fate(waiter).unwrap_err().may_have_had_effect());
    }
    for waiter in [&mut taken, &mut queued] {
        assert!(!fate(waiter).unwrap_err().may_have_had_effect());
        assert!(waiter.written.try_recv().unwrap().is_err());
    }
    whole.written.try_recv().unwrap().unwrap();
    assert!(partly.written.try_recv().unwrap().is_err());
    let mut late = world.enqueue(SECOND, 5);
    assert!(matches!(fate(&mut late), Err(CallError::NotSent { .. })));
}

#[test]
fn a_late_request_gives_the_connection_up_and_names_itself() {
    let mut world = World::new();
    let mut patient = world.enqueue(10 * SECOND, 5);
    let mut late = world.enqueue(SECOND, 5);
    let taken = world.take();
    world.exchange.handed(taken);
    let idle = 60 * SECOND;
    assert_eq!(world.exchange.next_look(idle), world.now + SECOND);
    assert!(world.exchange.overdue(world.now, idle).is_none());
    world.now += SECOND;
    let cause = world.exchange.overdue(world.now, idle).expect("the second request is late");
    world.exchange.close(world.now, cause);
    let late = fate(&mut late).unwrap_err();
    assert!(matches!(late, CallError::Unknown { cause: Cause::TimedOut(SECOND), .. }), "{late}");
    let patient = fate(&mut patient).unwrap_err();
    assert!(matches!(patient, CallError::Unknown { cause: Cause::Lost(_), .. }), "{patient}");
}

#[test]
fn only_an_unused_connection_goes_idle() {
    let mut world = World::new();
    let idle = SECOND;
    let _waiter = world.enqueue(10 * SECOND, 5);
    let taken = world.take();
    world.exchange.handed(taken);
    world.now += 2 * SECOND;
    assert!(world.exchange.overdue(world.now, idle).is_none());
    world.answer(0).unwrap();
    assert!(world.exchange.overdue(world.now, idle).is_none());
    world.now += SECOND;
    assert!(matches!(world.exchange.overdue(world.now, idle), Some(Cause::Idle)));
}

#[test]
fn a_caller_without_end_meets_the_limit() {
    let mut world = World::new();
    let mut waiters: Vec<_> =
        (0..=limits::MAX_CONNECTION_REQUESTS).map(|_| world.enqueue(SECOND, 1)).collect();
    let last = fate(waiters.last_mut().unwrap());
    assert!(matches!(&last, Err(CallError::NotSent { cause: Cause::Full(_), .. })));
    assert!(last.is_err_and(|error| error.is_retriable()), "it passes by itself");
}
