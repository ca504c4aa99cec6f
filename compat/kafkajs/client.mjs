// kafkajs as a command: JSON lines of {key, value, headers} (base64 or null) as input and output.
//   node client.mjs create  HOST:PORT TOPIC PARTITIONS
//   node client.mjs produce HOST:PORT TOPIC none|gzip|snappy|lz4|zstd   < records
//   node client.mjs consume HOST:PORT TOPIC PARTITION OFFSET COUNT      > records
//   node client.mjs offsets HOST:PORT TOPIC [TIMESTAMP]
//   node client.mjs group   HOST:PORT TOPIC GROUP CLIENT_ID SESSION_MS  > events, until SIGTERM
//   node client.mjs transactions HOST:PORT TOPIC ID                     > the fenced calls, the committed offset
//   node client.mjs groups  HOST:PORT TOPIC GROUP                       > list, description, offsets; then deletes it
//   node client.mjs secured HOST:PORT TOPIC                             < credentials; > records and errors
// OTTLA_COMPAT_HIGHEST={"1": 3} is the highest version that it uses of an API, by key.
// kafkajs consumes only through groups; `consume` therefore drives the Cluster and Batch classes that its own consumer
// uses, with no coordinator.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)
const protocol = require('kafkajs/src/protocol/requests')
const { lookup } = protocol
const highest = JSON.parse(process.env.OTTLA_COMPAT_HIGHEST ?? '{}')
protocol.lookup = versions =>
  lookup(
    Object.fromEntries(
      Object.entries(versions).map(([key, { minVersion, maxVersion }]) => [
        key,
        { minVersion, maxVersion: Math.min(maxVersion, highest[key] ?? maxVersion) },
      ])
    )
  )
const kafkajs = require('kafkajs')
const { AssignerProtocol, Kafka, CompressionTypes, CompressionCodecs, logLevel } = kafkajs
const Cluster = require('kafkajs/src/cluster')
const { createLogger } = require('kafkajs/src/loggers')
const consoleLogger = require('kafkajs/src/loggers/console')
const defaultSocketFactory = require('kafkajs/src/network/socketFactory')
const Batch = require('kafkajs/src/consumer/batch')
const lz4 = require('lz4js')
const { ZstdCodec } = require('zstd-codec')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
})
const zstd = await new Promise(resolve => ZstdCodec.run(z => resolve(new z.Simple())))
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
})

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
const decode = text => (text === null ? null : Buffer.from(text, 'base64'))
const encode = bytes => (bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString('base64'))
const print = value => process.stdout.write(JSON.stringify(value) + '\n')

const [, , command, broker, topic, ...rest] = process.argv
const clientId = command === 'group' ? rest[1] : 'compat'
const PATIENT = { connectionTimeout: 30_000, authenticationTimeout: 30_000 } // one second by default: too short under load
const kafka = new Kafka({ clientId, brokers: [broker], logLevel: logLevel.ERROR, ...PATIENT })

// Commands other than `group` take seconds; this prints the cause of a hang before the test times out after 90 s.
if (command !== 'group') {
  setTimeout(() => console.error('after 60 s it waits for', process.getActiveResourcesInfo()), 60_000).unref()
}

async function input() {
  let text = ''
  for await (const chunk of process.stdin) text += chunk
  return text
}

async function records() {
  return (await input())
    .split('\n')
    .filter(line => line)
    .map(line => JSON.parse(line))
    .map(({ key, value, headers }) => ({
      key: decode(key),
      value: decode(value),
      headers: Object.fromEntries(headers.map(([name, content]) => [name, decode(content)])),
    }))
}

async function consume(partition, offset, count) {
  const rootLogger = createLogger({ level: logLevel.ERROR, logCreator: consoleLogger })
  const cluster = new Cluster({
    logger: rootLogger,
    socketFactory: defaultSocketFactory(),
    brokers: [broker],
    clientId: 'compat',
    ...PATIENT,
    reauthenticationThreshold: 10000,
    requestTimeout: 30000,
    metadataMaxAge: 60000,
    retry: { retries: 5 },
    maxInFlightRequests: null,
    isolationLevel: 1,
    offsets: new Map(),
  })
  await cluster.connect()
  await cluster.addTargetTopic(topic)
  const leaders = cluster.findLeaderForPartitions(topic, [partition])
  const node = await cluster.findBroker({ nodeId: Object.keys(leaders)[0] })
  let next = offset
  let left = count
  while (left > 0) {
    const topics = [{ topic, partitions: [{ partition, fetchOffset: String(next), maxBytes: 1048576 }] }]
    const { responses } = await node.fetch({ topics, maxWaitTime: 500, isolationLevel: 1 })
    for (const message of new Batch(topic, String(next), responses[0].partitions[0]).messages) {
      if (left-- <= 0) break
      const headers = Object.entries(message.headers ?? {}).map(([name, content]) => [name, encode(content)])
      print({ offset: Number(message.offset), key: encode(message.key), value: encode(message.value), headers })
      next = Number(message.offset) + 1
    }
  }
  await cluster.disconnect()
}

// The assignor that every library supports, under the name that the others use.
const range = () => ({
  name: 'range',
  version: 0,
  async assign({ members, topics }) {
    const partitions = (await metadata(topics[0])).map(each => each.partitionId).sort((a, b) => a - b)
    const ids = members.map(each => each.memberId).sort()
    const [least, rest] = [Math.floor(partitions.length / ids.length), partitions.length % ids.length]
    return ids.map((memberId, i) => {
      const start = i * least + Math.min(i, rest)
      const assignment = { [topics[0]]: partitions.slice(start, start + least + (i < rest ? 1 : 0)) }
      return { memberId, memberAssignment: AssignerProtocol.MemberAssignment.encode({ version: 0, assignment }) }
    })
  },
  protocol({ topics }) {
    return { name: 'range', metadata: AssignerProtocol.MemberMetadata.encode({ version: 0, topics }) }
  },
})

async function metadata(name) {
  const admin = kafka.admin()
  await admin.connect()
  const { topics } = await admin.fetchTopicMetadata({ topics: [name] })
  await admin.disconnect()
  return topics[0].partitions
}

// A member releases its partitions when kafkajs is about to rejoin, after the last record of its batches, or when the
// process is stopped: the rest of a batch is then neither processed nor resolved. Every line has a time in milliseconds.
async function group(groupId, sessionTimeout) {
  const owned = new Set()
  let leaving = false
  const tell = event => print({ at: Date.now(), ...event })
  const release = () => {
    tell({ revoked: [...owned] })
    owned.clear()
  }
  const consumer = kafka.consumer({
    groupId,
    partitionAssigners: [range],
    sessionTimeout,
    heartbeatInterval: 300,
    maxWaitTimeInMs: 50,
  })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    if (leaving) return // partitions assigned after the signal are released unread
    if (owned.size) release() // the coordinator had removed this member, and kafkajs rejoined without an event
    const assigned = payload.memberAssignment[topic] ?? []
    assigned.forEach(partition => owned.add(partition))
    tell({ assigned })
  })
  consumer.on(consumer.events.REBALANCING, release)
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  process.once('SIGTERM', async () => {
    leaving = true
    release()
    await consumer.disconnect()
    process.exit(0)
  })
  await consumer.run({
    autoCommitInterval: 200,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat, commitOffsetsIfNecessary, isRunning, isStale }) => {
      for (const message of batch.messages) {
        if (!isRunning() || isStale() || !owned.has(batch.partition)) break
        tell({ partition: batch.partition, offset: Number(message.offset) })
        resolveOffset(message.offset)
      }
      await heartbeat()
      await commitOffsetsIfNecessary()
    },
  })
}

async function groups(groupId) {
  const admin = kafka.admin()
  await admin.connect()
  print(await admin.listGroups())
  print(await admin.describeGroups([groupId]))
  print(await admin.fetchOffsets({ groupId, topics: [topic] }))
  await admin.resetOffsets({ groupId, topic, earliest: true })
  print(await admin.fetchOffsets({ groupId, topics: [topic] }))
  print(await admin.deleteGroups([groupId]))
  await admin.disconnect()
}

async function openTransactional(transactionalId) {
  const producer = kafka.producer({ transactionalId, maxInFlightRequests: 1, idempotent: true, retry: { retries: 10 } })
  await producer.connect()
  return producer
}

// Commits, aborts, group offsets, and a zombie that its successor fences in the middle of a transaction.
async function transactions(transactionalId) {
  const groupId = `${transactionalId}-group`
  const admin = kafka.admin()
  await admin.connect()
  const first = await openTransactional(transactionalId)
  const send = (transaction, value) => transaction.send({ topic, acks: -1, messages: [{ value, partition: 0 }] })
  for (const [number, end] of ['commit', 'abort', 'abort', 'commit'].entries()) {
    const transaction = await first.transaction()
    await send(transaction, `${number} ${end}`)
    const partitions = [{ partition: 0, offset: String(number + 1) }]
    await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic, partitions }] })
    await transaction[end]()
  }
  const zombie = await first.transaction()
  await send(zombie, 'zombie')
  const second = await openTransactional(transactionalId)
  const transaction = await second.transaction()
  await send(transaction, 'second')
  const refused = await zombie.commit().then(() => null, error => error)
  print({ fenced: refused === null ? null : refused.type ?? refused.name })
  await transaction.commit()
  print(await admin.fetchOffsets({ groupId, topics: [topic] }))
  await admin.disconnect()
  await first.disconnect()
  await second.disconnect()
}

const REAUTHENTICATES_BEFORE_MS = 1000

// A client with these credentials; the secret of OAUTHBEARER is its token.
function entering({ authority, certificate, mechanism, name, secret }) {
  const keys = certificate ? { cert: readFileSync(certificate), key: readFileSync(certificate) } : {}
  const shown =
    mechanism === 'OAUTHBEARER'
      ? { oauthBearerProvider: async () => ({ value: secret }) }
      : { username: name, password: secret }
  return new Kafka({
    clientId,
    brokers: [broker],
    logLevel: logLevel.NOTHING,
    ssl: { ca: [readFileSync(authority)], ...keys },
    sasl: mechanism ? { mechanism: mechanism.toLowerCase(), ...shown } : undefined,
    reauthenticationThreshold: REAUTHENTICATES_BEFORE_MS,
    retry: { initialRetryTime: 50, retries: 5 },
    ...PATIENT,
  })
}

const refusal = call =>
  call.then(
    () => null,
    error => error.type ?? error.cause?.type ?? error.message
  )

// For `millis` milliseconds its group reads each sent record; then it uses a forbidden topic and group.
async function secured({ right, wrong, group: groupId, closed, millis }) {
  const inside = entering(right)
  const read = []
  const producer = inside.producer({ idempotent: false })
  const consumer = inside.consumer({ groupId, maxWaitTimeInMs: 50 })
  const admin = inside.admin()
  await Promise.all([producer.connect(), consumer.connect(), admin.connect()])
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ autoCommitInterval: 200, eachMessage: async ({ message }) => read.push(message.value.toString()) })
  // With OAUTHBEARER kafkajs takes the refusal for a challenge, and only fails on its next request.
  const stranger = entering(wrong).admin()
  const until = Date.now() + millis
  for (let sent = 0; sent === 0 || Date.now() < until; sent++) {
    await producer.send({ topic, acks: -1, messages: [{ value: String(sent), partition: 0 }] })
    while (read.length <= sent) await new Promise(resolve => setTimeout(resolve, 5))
  }
  print({
    read,
    topic: await refusal(producer.send({ topic: closed, acks: -1, messages: [{ value: 'x', partition: 0 }] })),
    group: await refusal(admin.fetchOffsets({ groupId: closed, topics: [topic] })),
    wrong: await refusal(stranger.connect().then(() => stranger.listTopics())),
  })
  // kafkajs may never return from disconnect() if the session of a connection expires meanwhile.
  process.stdout.write('', () => process.exit())
}

if (command === 'create') {
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: Number(rest[0]) }], waitForLeaders: true })
  print(await admin.fetchTopicMetadata({ topics: [topic] }))
  await admin.disconnect()
} else if (command === 'produce') {
  const producer = kafka.producer({ idempotent: false })
  await producer.connect()
  const messages = (await records()).map(record => ({ ...record, partition: 0 }))
  print(await producer.send({ topic, acks: -1, compression: CODECS[rest[0]], messages }))
  await producer.disconnect()
} else if (command === 'consume') {
  await consume(Number(rest[0]), Number(rest[1]), Number(rest[2]))
} else if (command === 'offsets') {
  const admin = kafka.admin()
  await admin.connect()
  const read = rest.length ? admin.fetchTopicOffsetsByTimestamp(topic, Number(rest[0])) : admin.fetchTopicOffsets(topic)
  print(await read)
  await admin.disconnect()
} else if (command === 'group') {
  await group(rest[0], Number(rest[2]))
} else if (command === 'groups') {
  await groups(rest[0])
} else if (command === 'transactions') {
  await transactions(rest[0])
} else if (command === 'secured') {
  await secured(JSON.parse(await input()))
} else {
  throw new Error(`unknown command ${command}`)
}
