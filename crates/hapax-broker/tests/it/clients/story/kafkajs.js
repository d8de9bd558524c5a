// The story of `clients/mod.rs` with kafkajs. Arguments: bootstrap, topic, group. Prints one JSON object.

const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic, group] = process.argv.slice(-3)
const QUIET = 1000
const LIMIT = 60000
const kafka = new Kafka({ clientId: 'kafkajs', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
const sleep = ms => new Promise(done => setTimeout(done, ms))

const producer = async transactionalId => {
  const opened = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })
  await opened.connect()
  return opened
}

const send = (to, ...values) => to.send({ topic, acks: -1, messages: values.map(value => ({ value, partition: 0 })) })

const read = async (isolation, groupId, expected) => {
  const consumer = kafka.consumer({ groupId, readUncommitted: isolation === 'read_uncommitted', maxWaitTimeInMs: 50 })
  const values = []
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({ autoCommit: false, eachMessage: async ({ message }) => values.push(message.value.toString()) })
  const deadline = Date.now() + LIMIT
  while (values.length < expected && Date.now() < deadline) await sleep(20)
  await sleep(QUIET)
  await consumer.disconnect()
  return values
}

const offsets = offset => ({ consumerGroupId: group, topics: [{ topic, partitions: [{ partition: 0, offset }] }] })

const story = async () => {
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 1 }] })

  const first = await producer(topic + '-id')
  let transaction = await first.transaction()
  await send(transaction, 'a0', 'a1', 'a2')
  await transaction.commit()
  transaction = await first.transaction()
  await send(transaction, 'b0', 'b1')
  await transaction.abort()
  transaction = await first.transaction()
  await send(transaction, 'c0')
  await transaction.sendOffsets(offsets('5'))
  await transaction.commit()
  transaction = await first.transaction()
  await send(transaction, 'd0')
  await transaction.sendOffsets(offsets('9'))
  await transaction.abort()
  const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] })

  const second = await producer(topic + '-id')
  let last = await second.transaction()
  let fenced = 'nothing'
  try {
    transaction = await first.transaction()
    await send(transaction, 'never')
    await transaction.commit()
  } catch (error) {
    fenced = error.type || (error.cause && error.cause.type) || error.name
  }

  const third = await producer(topic + '-other')
  transaction = await third.transaction()
  await send(transaction, 'o0')
  await send(last, 'e0')
  await last.commit()
  const held = await read('read_committed', topic + '-held', 4)
  await transaction.abort()
  const committed = await read('read_committed', topic + '-committed', 5)
  const everything = await read('read_uncommitted', topic + '-everything', 9)
  console.log(JSON.stringify({ offset: Number(found.partitions[0].offset), fenced, held, committed, everything }))
  for (const open of [second, third, admin]) await open.disconnect()
}

story().then(
  () => process.exit(0),
  error => {
    console.error(error)
    process.exit(1)
  }
)
