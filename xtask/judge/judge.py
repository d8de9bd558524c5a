"""The judge: reads and writes Kafka with librdkafka, and shares no code with the client under test.

Speaks JSON lines: requests on standard input, answers on standard output. A request is
{"do": NAME, "number": N, ...}; its answer is {"ok": ..., "number": N} or {"error": TEXT, "number": N}, in whatever
order the work is done: each request is served by a thread of its own. Keys, values and header values are
hexadecimal, null where there is none. Ends with its standard input. Every wait has a limit.
"""

import asyncio
import json
import sys
import threading
import time
import traceback

from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
    IsolationLevel,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

REQUEST_TIMEOUT = 30.0
FLUSH_TIMEOUT = 120.0
BATCH = 20_000
EXAMPLES = 10
KEPT_WRITERS = 16
WRITER_KEPT_FOR = 2.0

open_producers = {}
kept_writers = {}
keeping = threading.Lock()


def base(bootstrap):
    return {"bootstrap.servers": bootstrap, "log_level": 3, "socket.timeout.ms": 10_000}


def admin(request):
    return AdminClient(base(request["bootstrap"]))


def settle(futures):
    return {name: future.result(timeout=REQUEST_TIMEOUT) for name, future in futures.items()}


# What a broker says while it or a leadership is coming back.
PASSING = {
    "FENCED_LEADER_EPOCH",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "OFFSET_NOT_AVAILABLE",
    "UNKNOWN_LEADER_EPOCH",
    "_NOENT",
    "_TIMED_OUT",
    "_TRANSPORT",
}


def listed(client, ask):
    """The answers of a look-up that changes nothing, asked again, of the leaders of now, while a broker is coming back."""
    deadline = time.monotonic() + REQUEST_TIMEOUT
    stale = False
    while True:
        try:
            if stale:
                client.list_topics(timeout=REQUEST_TIMEOUT)
            return settle(ask())
        except KafkaException as error:
            if error.args[0].name() not in PASSING or time.monotonic() >= deadline:
                raise
        stale = True
        time.sleep(0.2)


def text(data):
    return None if data is None else data.hex()


def data(hexadecimal):
    return None if hexadecimal is None else bytes.fromhex(hexadecimal)


# ---- topics ---------------------------------------------------------------------------------------------


def create_topic(request):
    client = admin(request)
    topic = NewTopic(
        request["topic"],
        num_partitions=request["partitions"],
        replication_factor=-1,
        config=request["config"],
    )
    settle(client.create_topics([topic], operation_timeout=REQUEST_TIMEOUT))
    await_topic(client, request["topic"], request["partitions"])


def await_topic(client, topic, partitions):
    """The answer to CreateTopics does not say that every broker knows the topic: wait for its leaders."""
    deadline = time.monotonic() + REQUEST_TIMEOUT
    while True:
        known = client.list_topics(timeout=REQUEST_TIMEOUT).topics.get(topic)
        if known and not known.error and len(known.partitions) == partitions:
            if all(p.leader >= 0 for p in known.partitions.values()):
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {topic} has no leaders on {partitions} partitions")
        time.sleep(0.02)


def delete_topic(request):
    client = admin(request)
    topic = request["topic"]
    settle(client.delete_topics([topic], operation_timeout=REQUEST_TIMEOUT))
    deadline = time.monotonic() + REQUEST_TIMEOUT
    while topic in client.list_topics(timeout=REQUEST_TIMEOUT).topics:
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {topic} is still known after its deletion")
        time.sleep(0.02)
    forget_writers()


def add_partitions(request):
    client = admin(request)
    settle(client.create_partitions([NewPartitions(request["topic"], request["partitions"])]))
    await_topic(client, request["topic"], request["partitions"])
    forget_writers()


def configure_topic(request):
    client = admin(request)
    set_to = AlterConfigOpType.SET
    entries = [ConfigEntry(name, value, incremental_operation=set_to) for name, value in request["config"].items()]
    topic = ConfigResource(ResourceType.TOPIC, request["topic"], incremental_configs=entries)
    settle(client.incremental_alter_configs([topic]))
    await_config(client, request["topic"], request["config"])


def await_config(client, topic, config):
    """The answer does not say that the broker goes by it already: wait until it tells the new values."""
    deadline = time.monotonic() + REQUEST_TIMEOUT
    resource = ConfigResource(ResourceType.TOPIC, topic)
    while True:
        known = settle(client.describe_configs([resource]))[resource]
        if all(known[name].value == value for name, value in config.items()):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {topic} does not have the configuration {config}")
        time.sleep(0.02)


def delete_records(request):
    """Moves the log start: what lies before the offset can no longer be read."""
    # The client's own thread settles the futures: it must outlive them.
    client = admin(request)
    target = TopicPartition(request["topic"], request["partition"], request["before"])
    settle(client.delete_records([target]))


def topics(request):
    known = admin(request).list_topics(timeout=REQUEST_TIMEOUT).topics
    return sorted(name for name in known if not name.startswith("__"))


def group_offsets(request):
    # Not librdkafka: it leaves no end mark behind the metadata, and its Python wheel reads on behind it.
    async def fetch():
        client = AIOKafkaAdminClient(bootstrap_servers=request["bootstrap"])
        await client.start()
        try:
            return await client.list_consumer_group_offsets(request["group"])
        finally:
            await client.close()

    found = asyncio.run(fetch())
    return [[at.topic, at.partition, o.offset, o.metadata] for at, o in found.items() if o.offset >= 0]


# ---- writing --------------------------------------------------------------------------------------------


class Writer:
    """A producer that counts what was acknowledged and fails on the first record that was not."""

    def __init__(self, bootstrap, transactional_id=None, config=None):
        settings = base(bootstrap)
        settings.update({"acks": "all", "enable.idempotence": True, "linger.ms": 5})
        settings.update({"queue.buffering.max.messages": 1_000_000})
        settings.update(config or {})
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        self.producer = Producer(settings)
        self.acknowledged = 0
        self.failure = None
        if transactional_id is not None:
            self.producer.init_transactions(REQUEST_TIMEOUT)

    def delivered(self, error, message):
        if error is None:
            self.acknowledged += 1
        elif self.failure is None:
            self.failure = f"a record for {message.topic()}-{message.partition()} failed: {error}"

    def send(self, topic, key, value, partition=-1, headers=None, timestamp=0):
        while True:
            try:
                self.producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=self.delivered,
                    timestamp=timestamp,
                    headers=headers,
                )
                return
            except BufferError:
                self.producer.poll(0.1)

    def flush(self):
        left = self.producer.flush(FLUSH_TIMEOUT)
        if self.failure is not None:
            raise RuntimeError(self.failure)
        if left:
            raise TimeoutError(f"{left} records were not acknowledged within {FLUSH_TIMEOUT} s")

    def finish(self, outcome):
        self.flush()
        if outcome == "commit":
            self.producer.commit_transaction(REQUEST_TIMEOUT)
        else:
            self.producer.abort_transaction(REQUEST_TIMEOUT)

    def send_records(self, topic, records):
        for record in records:
            headers = [(name, data(value)) for name, value in record["headers"]]
            timestamp = record["timestamp"]
            self.send(
                topic,
                data(record["key"]),
                data(record["value"]),
                -1 if record["partition"] is None else record["partition"],
                headers or None,
                0 if timestamp is None else timestamp,
            )


class Kept:
    """A producer that nobody uses, and of which state of the topics it knows."""

    def __init__(self, writer, state):
        self.writer = writer
        self.state = state
        self.since = time.monotonic()


topics_state = 0


def forget_writers():
    """A producer that has written to a topic knows neither its end nor the partitions that came later."""
    global topics_state
    with keeping:
        topics_state += 1
        forgotten = list(kept_writers.values())
        kept_writers.clear()
    del forgotten  # their ends are waited for


def take_writer(at):
    with keeping:
        now = time.monotonic()
        old = [at for at, kept in kept_writers.items() if now - kept.since > WRITER_KEPT_FOR]
        ended = [kept_writers.pop(at) for at in old]
        while len(kept_writers) >= KEPT_WRITERS:
            ended.append(kept_writers.pop(next(iter(kept_writers))))
        taken, state = kept_writers.pop(at, None), topics_state
    del ended
    return taken, state


def keep_writer(at, kept):
    with keeping:
        before = kept_writers.pop(at, None)
        if kept.state == topics_state:
            kept_writers[at] = kept
    del before


def kept(request, write):
    """Writes with the producer of a moment ago, where there is one: a first one waits half a second for its id."""
    at = json.dumps([request["bootstrap"], request["config"]], sort_keys=True)
    taken, state = take_writer(at)
    writer = taken.writer if taken else Writer(request["bootstrap"], config=request["config"])
    before = writer.acknowledged
    write(writer)
    writer.flush()
    acknowledged = writer.acknowledged - before
    keep_writer(at, Kept(writer, state))
    return acknowledged


def produce(request):
    return kept(request, lambda writer: writer.send_records(request["topic"], request["records"]))


def render(template, number):
    """The bytes for a number: what Template documents on the Rust side."""
    if "$" not in template:
        return template.encode()
    return (
        template.replace("$id", str(number))
        .replace("$amount", str(number * 37 % 1000))
        .replace("$key", f"k{number % 100}")
        .encode()
    )


def produce_numbers(request):
    every = request["transactions_of"]
    if every is None:
        return kept(request, lambda writer: send_numbers(writer, request, 0, request["count"], Pace(request["per_second"])))
    identity = f"judge-numbers-{request['topic']}-{time.time_ns()}"
    writer = Writer(request["bootstrap"], identity, request["config"])
    pace = Pace(request["per_second"])
    for start in range(0, request["count"], every):
        writer.producer.begin_transaction()
        send_numbers(writer, request, start, min(start + every, request["count"]), pace)
        writer.finish("commit")
        abort_some(writer, request, request["from"] + start)
    writer.flush()
    return writer.acknowledged


def send_numbers(writer, request, start, end, pace):
    for number in range(start, end):
        pace.wait(number, writer)
        send_number(writer, request, request["from"] + number)


def send_number(writer, request, number):
    key = request["key"]
    writer.send(
        request["topic"],
        None if key is None else render(key, number),
        render(request["value"], number),
        number % request["partitions"],
    )
    if number % 1000 == 0:
        writer.producer.poll(0)


def abort_some(writer, request, start):
    """A transaction that no read_committed reader may see: numbers that no expectation holds."""
    writer.producer.begin_transaction()
    for number in range(request["partitions"] * 10):
        send_number(writer, request, 1_000_000_000_000 + start + number)
    writer.finish("abort")


class Pace:
    def __init__(self, per_second):
        self.per_second = per_second
        self.start = time.monotonic()

    def wait(self, sent, writer):
        if self.per_second is None:
            return
        ahead = sent / self.per_second - (time.monotonic() - self.start)
        if ahead > 0.01:
            writer.producer.flush(ahead)
            time.sleep(max(0.0, sent / self.per_second - (time.monotonic() - self.start)))


def produce_transactional(request):
    identity = request["transactional_id"]
    writer = open_producers.pop(identity, None)
    if writer is None:
        config = {"transaction.timeout.ms": request["timeout_ms"]}
        writer = Writer(request["bootstrap"], identity, config)
        writer.producer.begin_transaction()
    writer.send_records(request["topic"], request["records"])
    writer.flush()
    if request["outcome"] == "open":
        open_producers[identity] = writer
    else:
        writer.finish(request["outcome"])
    return writer.acknowledged


def end_transaction(request):
    writer = open_producers.pop(request["transactional_id"], None)
    if writer is None:
        raise KeyError(f"no transaction of {request['transactional_id']} was left open here")
    writer.finish(request["outcome"])


# ---- reading --------------------------------------------------------------------------------------------


def ends(client, partitions, level):
    """Log ends: the last stable offsets for a read_committed reader, else the high watermarks."""
    query = {partition: OffsetSpec.latest() for partition in partitions}
    found = listed(client, lambda: client.list_offsets(query, isolation_level=level, request_timeout=REQUEST_TIMEOUT))
    return {partition.partition: result.offset for partition, result in found.items()}


def starts(client, partitions):
    query = {partition: OffsetSpec.earliest() for partition in partitions}
    found = listed(client, lambda: client.list_offsets(query, request_timeout=REQUEST_TIMEOUT))
    return {partition.partition: result.offset for partition, result in found.items()}


def partitions_of(client, topic):
    deadline = time.monotonic() + REQUEST_TIMEOUT
    while True:
        known = client.list_topics(topic, timeout=REQUEST_TIMEOUT).topics[topic]
        if not known.error:
            return [TopicPartition(topic, number) for number in sorted(known.partitions)]
        if known.error.name() not in PASSING or time.monotonic() >= deadline:
            raise KafkaException(known.error)
        time.sleep(0.2)


def reader(bootstrap, isolation):
    """A consumer outside every group, which says when it stands at the end of a partition."""
    settings = base(bootstrap)
    settings.update(
        {
            "group.id": "judge-that-never-commits",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "check.crcs": True,
        }
    )
    return Consumer(settings)


def some(consumer):
    """What has come, as soon as something has. To ask for a batch at once would wait until it is full."""
    first = consumer.poll(0.05)
    return [] if first is None else [first, *consumer.consume(BATCH, timeout=0)]


class Reading:
    """One topic from its log start to the ends that hold when the reading begins."""

    def __init__(self, bootstrap, topic, isolation, timeout):
        client = AdminClient(base(bootstrap))
        self.topic = topic
        self.isolation = isolation
        self.deadline = time.monotonic() + timeout
        self.bootstrap = bootstrap
        partitions = partitions_of(client, topic)
        self.start = starts(client, partitions)
        self.stable = ends(client, partitions, IsolationLevel.READ_COMMITTED)
        self.high = ends(client, partitions, IsolationLevel.READ_UNCOMMITTED)
        self.end = self.stable if isolation == "read_committed" else self.high

    def messages(self):
        """Yields the messages before the ends. A partition is done at a message at or past the last offset,
        or when the consumer says that it stands at the end: the last offset may hold a control record."""
        waiting = {p for p, end in self.end.items() if end > self.start[p]}
        if not waiting:
            return
        consumer = reader(self.bootstrap, self.isolation)
        try:
            consumer.assign([TopicPartition(self.topic, p, self.start[p]) for p in sorted(waiting)])
            while waiting:
                if time.monotonic() > self.deadline:
                    raise TimeoutError(f"{self.topic}: partitions {sorted(waiting)} were not read to {self.end}")
                for message in some(consumer):
                    partition, end = message.partition(), self.end.get(message.partition(), 0)
                    error = message.error()
                    if error is not None:
                        if error.code() != KafkaError._PARTITION_EOF:
                            passing = error.code() == KafkaError._ALL_BROKERS_DOWN or error.name() in PASSING
                            if error.retriable() or passing:
                                continue
                            raise KafkaException(error)
                    elif message.offset() < end:
                        yield message
                    if message.offset() >= end - (0 if error else 1):
                        waiting.discard(partition)
        finally:
            consumer.close()

    def bounds(self, partition):
        return {
            "partition": partition,
            "start": self.start[partition],
            "stable_end": self.stable[partition],
            "end": self.high[partition],
        }


def read_all(request):
    reading = Reading(request["bootstrap"], request["topic"], request["isolation"], request["timeout"])
    records = {partition: [] for partition in reading.end}
    for message in reading.messages():
        headers = [[name, text(value)] for name, value in message.headers() or []]
        records[message.partition()].append(
            [message.offset(), text(message.key()), text(message.value()), headers, message.timestamp()[1]]
        )
    return [dict(reading.bounds(p), records=found) for p, found in sorted(records.items())]


def end_offsets(request):
    client = admin(request)
    partitions = partitions_of(client, request["topic"])
    start = starts(client, partitions)
    stable = ends(client, partitions, IsolationLevel.READ_COMMITTED)
    high = ends(client, partitions, IsolationLevel.READ_UNCOMMITTED)
    return [
        {"partition": p, "start": start[p], "stable_end": stable[p], "end": high[p]} for p in sorted(high)
    ]


def number_in(message, field):
    """The integer at a field of a JSON value, dots for nested objects; None where there is none."""
    try:
        value = json.loads(message.value())
        for name in field.split("."):
            value = value[name]
        return value if isinstance(value, int) else None
    except (ValueError, TypeError, KeyError):
        return None


class Audit:
    """Counts what is missing, there twice, out of order, foreign or changed. Numbers seen once cost a byte or
    a dictionary entry each."""

    def __init__(self, request):
        self.request = request
        self.expected = request["expected"]
        self.chosen = None if self.expected["ids"] is None else set(self.expected["ids"])
        self.seen = {}
        self.newest = {}
        self.counts = dict.fromkeys(
            ("records", "duplicated", "reordered", "unexpected", "mismatched", "unreadable"), 0
        )
        self.examples = []

    def expects(self, number):
        if self.chosen is not None:
            return number in self.chosen
        first = self.expected["from"]
        return first <= number < first + self.expected["count"]

    def note(self, what, message, detail):
        self.counts[what] += 1
        if len(self.examples) < EXAMPLES:
            where = f"{message.topic()}-{message.partition()}@{message.offset()}"
            self.examples.append(f"{what}: {where} {detail}")

    def take(self, message):
        self.counts["records"] += 1
        number = number_in(message, self.request["field"])
        if number is None:
            self.note("unreadable", message, f"has no integer at {self.request['field']}")
            return
        if not self.expects(number):
            self.note("unexpected", message, f"id {number}")
            return
        template = self.request["value"]
        if template is not None and message.value() != render(template, number):
            self.note("mismatched", message, f"id {number}: {message.value()[:100]}")
        if number in self.seen:
            self.seen[number] += 1
            self.note("duplicated", message, f"id {number}")
            return
        self.seen[number] = 1
        self.order(message, number)

    def order(self, message, number):
        source = number % self.request["source_partitions"]
        place = (message.topic(), message.partition(), source)
        newest = self.newest.get(place)
        if newest is not None and number < newest:
            self.note("reordered", message, f"id {number} after {newest}")
        else:
            self.newest[place] = number

    def result(self):
        first = self.expected["from"]
        wanted = self.chosen
        if wanted is None:
            wanted = range(first, first + self.expected["count"])
        missing = sorted(number for number in wanted if number not in self.seen)
        for number in missing[: max(0, EXAMPLES - len(self.examples))]:
            self.examples.append(f"lost: id {number}")
        return dict(self.counts, lost=len(missing), examples=self.examples)


def audit(request):
    judgement = Audit(request)
    unstable = 0
    for topic in request["topics"]:
        reading = Reading(request["bootstrap"], topic, "read_committed", request["timeout"])
        unstable += sum(reading.high[p] - reading.stable[p] for p in reading.high)
        for message in reading.messages():
            judgement.take(message)
    return dict(judgement.result(), unstable=unstable)


def await_number(request):
    """Whether a read_committed reader that begins at `after` gets a number from `from` on before the time is over."""
    deadline = time.monotonic() + request["timeout_ms"] / 1000
    partitions = partitions_of(AdminClient(base(request["bootstrap"])), request["topic"])
    consumer = reader(request["bootstrap"], "read_committed")
    try:
        after = {partition: offset for partition, offset in request["after"]}
        for partition in partitions:
            partition.offset = after.get(partition.partition, OFFSET_BEGINNING)
        consumer.assign(partitions)
        while (left := deadline - time.monotonic()) > 0:
            message = consumer.poll(left)
            if message is None or message.error() is not None:
                continue
            number = number_in(message, request["field"])
            if number is not None and number >= request["from"]:
                return True
        return False
    finally:
        consumer.close()


COMMANDS = {
    command.__name__: command
    for command in (
        create_topic,
        delete_topic,
        add_partitions,
        configure_topic,
        delete_records,
        topics,
        group_offsets,
        produce,
        produce_numbers,
        produce_transactional,
        end_transaction,
        read_all,
        end_offsets,
        audit,
        await_number,
    )
}


def serve(request, answering):
    try:
        answer = {"number": request["number"], "ok": COMMANDS[request["do"]](request)}
        line = json.dumps(answer, separators=(",", ":"))
    except Exception as error:  # every failure of a command is its answer; the process goes on
        traceback.print_exc()
        answer = {"number": request["number"], "error": f"{type(error).__name__}: {error}"}
        line = json.dumps(answer, separators=(",", ":"))
    with answering:
        print(line, flush=True)


def main():
    answering = threading.Lock()
    for line in sys.stdin:
        threading.Thread(target=serve, args=(json.loads(line), answering), daemon=True).start()


if __name__ == "__main__":
    main()
