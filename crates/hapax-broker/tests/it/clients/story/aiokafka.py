"""The story of `clients/mod.rs` with aiokafka. Arguments: bootstrap, topic, group. Prints one JSON object."""

import asyncio
import json
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

bootstrap, topic, group = sys.argv[1:]
LIMIT = 60.0
QUIET = 1.0


async def producer(identity):
    opened = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=identity, transaction_timeout_ms=60_000)
    await opened.start()
    return opened


async def send(to, *values):
    for value in values:
        await to.send_and_wait(topic, value.encode(), partition=0)


async def read(isolation, name, expected):
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=name,
        isolation_level=isolation,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    values = []
    try:
        while True:
            wait = QUIET if len(values) >= expected else LIMIT
            values.append((await asyncio.wait_for(consumer.getone(), wait)).value.decode())
    except asyncio.TimeoutError:
        return values
    finally:
        await consumer.stop()


async def story():
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    place = TopicPartition(topic, 0)

    first = await producer(f"{topic}-id")
    await first.begin_transaction()
    await send(first, "a0", "a1", "a2")
    await first.commit_transaction()
    await first.begin_transaction()
    await send(first, "b0", "b1")
    await first.abort_transaction()
    await first.begin_transaction()
    await send(first, "c0")
    await first.send_offsets_to_transaction({place: 5}, group)
    await first.commit_transaction()
    await first.begin_transaction()
    await send(first, "d0")
    await first.send_offsets_to_transaction({place: 9}, group)
    await first.abort_transaction()
    offsets = await admin.list_consumer_group_offsets(group)

    second = await producer(f"{topic}-id")
    try:
        await first.begin_transaction()
        await first.send_and_wait(topic, b"never", partition=0)
        await first.commit_transaction()
        fenced = "nothing"
    except KafkaError as error:
        fenced = type(error).__name__

    third = await producer(f"{topic}-other")
    await third.begin_transaction()
    await send(third, "o0")
    await second.begin_transaction()
    await send(second, "e0")
    await second.commit_transaction()
    held = await read("read_committed", f"{topic}-held", 4)
    await third.abort_transaction()
    print(
        json.dumps(
            {
                "offset": offsets[place].offset,
                "fenced": fenced,
                "held": held,
                "committed": await read("read_committed", f"{topic}-committed", 5),
                "everything": await read("read_uncommitted", f"{topic}-everything", 9),
            }
        )
    )
    for open_one in (second, third):
        await open_one.stop()
    await admin.close()


asyncio.run(asyncio.wait_for(story(), 3 * LIMIT))
