"""The story of `clients/mod.rs` with librdkafka. Arguments: bootstrap, topic, group. Prints one JSON object."""

import json
import sys
import time

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap, topic, group = sys.argv[1:]
LIMIT = 60.0
QUIET = 1.0
base = {"bootstrap.servers": bootstrap, "log_level": 3}


def producer(identity):
    opened = Producer({**base, "transactional.id": identity, "transaction.timeout.ms": 60_000, "linger.ms": 0})
    opened.init_transactions(LIMIT)
    return opened


def send(to, *values):
    for value in values:
        to.produce(topic, value.encode(), partition=0)
    assert to.flush(LIMIT) == 0


def read(isolation, name, expected):
    consumer = Consumer(
        {
            **base,
            "group.id": name,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.subscribe([topic])
    values, deadline = [], time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        message = consumer.poll(QUIET if len(values) >= expected else 5.0)
        if message is None:
            if len(values) >= expected:
                break
            continue
        if message.error():
            raise KafkaException(message.error())
        values.append(message.value().decode())
    consumer.close()
    return values


def offset_of_group(admin):
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return asked[group].result(LIMIT).topic_partitions[0].offset


admin = AdminClient(base)
admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(LIMIT)
member = Consumer({**base, "group.id": group})
metadata = member.consumer_group_metadata()

first = producer(f"{topic}-id")
first.begin_transaction()
send(first, "a0", "a1", "a2")
first.commit_transaction(LIMIT)
first.begin_transaction()
send(first, "b0", "b1")
first.abort_transaction(LIMIT)
first.begin_transaction()
send(first, "c0")
first.send_offsets_to_transaction([TopicPartition(topic, 0, 5)], metadata, LIMIT)
first.commit_transaction(LIMIT)
first.begin_transaction()
send(first, "d0")
first.send_offsets_to_transaction([TopicPartition(topic, 0, 9)], metadata, LIMIT)
first.abort_transaction(LIMIT)
offset = offset_of_group(admin)

second = producer(f"{topic}-id")
try:
    first.begin_transaction()
    first.produce(topic, b"never", partition=0)
    first.flush(LIMIT)
    first.commit_transaction(LIMIT)
    fenced = "nothing"
except KafkaException as error:
    fenced = error.args[0].name()
    assert error.args[0].fatal(), fenced

third = producer(f"{topic}-other")
third.begin_transaction()
send(third, "o0")
second.begin_transaction()
send(second, "e0")
second.commit_transaction(LIMIT)
held = read("read_committed", f"{topic}-held", 4)
third.abort_transaction(LIMIT)

print(
    json.dumps(
        {
            "offset": offset,
            "fenced": fenced,
            "held": held,
            "committed": read("read_committed", f"{topic}-committed", 5),
            "everything": read("read_uncommitted", f"{topic}-everything", 9),
        }
    )
)
