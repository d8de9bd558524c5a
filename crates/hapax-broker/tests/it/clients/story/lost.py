"""Commits and aborts with librdkafka while answers get lost. Arguments: bootstrap, topic, group. Prints one JSON object:
every record with its offset, and the group's offset."""

import json
import sys
import time

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap, topic, group = sys.argv[1:]
LIMIT = 60.0
base = {"bootstrap.servers": bootstrap, "log_level": 2}
place = TopicPartition(topic, 0)


def send(*values):
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
        assert producer.flush(LIMIT) == 0


def read(isolation):
    settings = {"group.id": f"{topic}-{isolation}", "isolation.level": isolation, "enable.partition.eof": True}
    consumer = Consumer({**base, **settings, "auto.offset.reset": "error"})
    place.offset = 0
    consumer.assign([place])
    records, deadline = [], time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        message = consumer.poll(5.0)
        if message is None:
            continue
        if message.error():
            if message.error().name() == "_PARTITION_EOF":
                break
            raise KafkaException(message.error())
        records.append([message.offset(), message.value().decode()])
    consumer.close()
    return records


admin = AdminClient(base)
admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(LIMIT)
metadata = Consumer({**base, "group.id": group}).consumer_group_metadata()
producer = Producer({**base, "transactional.id": f"{topic}-id", "linger.ms": 0, "reconnect.backoff.max.ms": 200})
producer.init_transactions(LIMIT)
send("a0", "a1")
producer.commit_transaction(LIMIT)
send("b0")
producer.send_offsets_to_transaction([TopicPartition(topic, 0, 3)], metadata, LIMIT)
producer.commit_transaction(LIMIT)
send("c0")
producer.abort_transaction(LIMIT)
send("d0")
producer.commit_transaction(LIMIT)
asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
print(
    json.dumps(
        {
            "offset": asked[group].result(LIMIT).topic_partitions[0].offset,
            "committed": read("read_committed"),
            "everything": read("read_uncommitted"),
        }
    )
)
