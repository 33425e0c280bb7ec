// Runs one command of kafkajs: a JSON object comes in on stdin, a JSON object goes out on stdout.
// Bytes travel as base64, and null stays null.
const fs = require("fs");
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, PartitionAssigners, logLevel } =
  require("kafkajs");

// kafkajs brings gzip; snappy is a small pure JavaScript library behind its codec interface.
const XERIAL_HEADER = Buffer.from([130, 83, 78, 65, 80, 80, 89, 0]);
CompressionCodecs[CompressionTypes.Snappy] = () => {
  const snappy = require("snappyjs");
  return {
    compress: async (encoder) => snappy.compress(encoder.buffer),
    decompress: async (buffer) =>
      buffer.subarray(0, 8).equals(XERIAL_HEADER) ? decompressXerial(snappy, buffer) : snappy.uncompress(buffer),
  };
};

function decompressXerial(snappy, buffer) {
  const parts = [];
  for (let position = 16; position < buffer.length; ) {
    const length = buffer.readUInt32BE(position);
    parts.push(snappy.uncompress(buffer.subarray(position + 4, position + 4 + length)));
    position += 4 + length;
  }
  return Buffer.concat(parts);
}

const COMPRESSION = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
};
const decode = (text) => (text === null ? null : Buffer.from(text, "base64"));
const encode = (bytes) => (bytes === null || bytes === undefined ? null : bytes.toString("base64"));

function kafkaFor({ bootstrap }) {
  return new Kafka({
    clientId: "penstock-e2e",
    brokers: [bootstrap],
    logLevel: logLevel.ERROR,
    retry: { retries: 8, initialRetryTime: 100 },
  });
}

async function produce(command) {
  const producer = kafkaFor(command).producer({ idempotent: command.idempotent || false });
  await producer.connect();
  const messages = command.messages.map((message) => ({
    key: decode(message.key),
    value: decode(message.value),
    partition: command.partition,
    headers: Object.fromEntries(message.headers.map(([name, value]) => [name, decode(value)])),
    ...(message.timestamp_ms === null ? {} : { timestamp: String(message.timestamp_ms) }),
  }));
  const sent = await producer.send({ topic: command.topic, acks: -1, compression: COMPRESSION[command.codec], messages });
  await producer.disconnect();
  return { sent };
}

// kafkajs reads only through a group, so this one reads under a group of its own.
async function consume(command) {
  const consumer = kafkaFor(command).consumer({ groupId: command.group, maxWaitTimeInMs: 200 });
  await consumer.connect();
  await consumer.subscribe({ topics: [command.topic], fromBeginning: true });
  const found = [];
  stage = "reading";
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer
      .run({
        eachMessage: async ({ partition, message }) => {
          if (partition !== command.partition || Number(message.offset) < command.offset) return;
          if (found.length < command.count) found.push(describe(message));
          if (found.length === command.count) resolve();
        },
      })
      .catch(reject);
    consumer.seek({ topic: command.topic, partition: command.partition, offset: String(command.offset) });
  });
  stage = "disconnecting";
  await consumer.disconnect();
  return { messages: found };
}

function describe(message) {
  const headers = [];
  for (const [name, value] of Object.entries(message.headers || {})) headers.push([name, encode(value)]);
  return {
    key: encode(message.key),
    value: encode(message.value),
    headers,
    timestamp_ms: Number(message.timestamp),
    timestamp_type: message.batchContext.timestampType,
    offset: Number(message.offset),
  };
}

// Reads a topic with several members of one group in this process; reports who read what.
async function group(command) {
  const kafka = kafkaFor(command);
  const perMember = {};
  const assignments = {};
  let total = 0;
  let finish;
  const done = new Promise((resolve) => (finish = resolve));
  const members = [];
  for (let number = 0; number < command.members; number++) {
    const consumer = kafka.consumer({
      groupId: command.group,
      partitionAssigners: [PartitionAssigners.roundRobin],
      sessionTimeout: 10000,
      heartbeatInterval: 500,
      maxWaitTimeInMs: 200,
    });
    perMember[number] = [];
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      assignments[number] = payload.memberAssignment[command.topic] || [];
    });
    await consumer.connect();
    await consumer.subscribe({ topics: [command.topic], fromBeginning: true });
    await consumer.run({
      eachMessage: async ({ partition, message }) => {
        perMember[number].push([partition, Number(message.offset)]);
        total += 1;
        if (total >= command.count) finish();
      },
    });
    members.push(consumer);
  }
  // Members join one after the other, so the last one's assignment comes with a rebalance.
  for (let waited = 0; waited < 900 && !settled(assignments, command); waited++) {
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const settledAssignments = JSON.parse(JSON.stringify(assignments));
  await done;
  for (const consumer of members) await consumer.disconnect();
  return { members: perMember, assignments: settledAssignments };
}

function settled(assignments, command) {
  const all = Object.values(assignments).flat();
  return (
    Object.keys(assignments).length === command.members &&
    all.length === command.partitions &&
    new Set(all).size === command.partitions
  );
}

async function admin(command) {
  const kafka = kafkaFor(command);
  const client = kafka.admin();
  await client.connect();
  const { topic } = command;
  const result = {};
  result.created = await client.createTopics({
    waitForLeaders: true,
    topics: [{ topic, numPartitions: 2, replicationFactor: 1, configEntries: [{ name: "retention.ms", value: "60000" }] }],
  });
  result.createdAgain = await client.createTopics({ topics: [{ topic, numPartitions: 2 }] });
  await client.createPartitions({ topicPartitions: [{ topic, count: 4 }] });
  result.metadata = await client.fetchTopicMetadata({ topics: [topic] });
  result.cluster = await client.describeCluster();
  await client.alterConfigs({
    validateOnly: false,
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: "retention.ms", value: "120000" }] }],
  });
  const described = await client.describeConfigs({
    includeSynonyms: false,
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ["retention.ms"] }],
  });
  result.configs = described.resources[0].configEntries;

  const producer = kafka.producer();
  await producer.connect();
  const messages = [0, 1, 2, 3, 4].map((number) => ({ partition: 0, value: String(number) }));
  await producer.send({ topic, messages });
  await producer.disconnect();

  await client.setOffsets({ groupId: command.group, topic, partitions: [{ partition: 0, offset: "3" }] });
  result.groupOffsets = await client.fetchOffsets({ groupId: command.group, topics: [topic] });
  result.groups = (await client.listGroups()).groups;
  result.describedGroups = (await client.describeGroups([command.group])).groups;
  result.deletedGroups = await client.deleteGroups([command.group]);
  await client.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "2" }] });
  result.topicOffsets = await client.fetchTopicOffsets(topic);
  result.byTime = await client.fetchTopicOffsetsByTimestamp(topic, 0);
  await client.deleteTopics({ topics: [topic] });
  result.topics = await client.listTopics();
  await client.disconnect();
  return result;
}

const COMMANDS = { produce, consume, group, admin };

// Without a handle of its own, node ends silently and with success when a promise of kafkajs never
// settles. An application always has one; and who ends without a result says how far it came.
const NO_RESULT = 3;
let stage = "starting";
setInterval(() => {}, 1000);
process.on("exit", (code) => {
  if (code === 0 && stage !== "answered") {
    console.error(`ended without a result while ${stage}`);
    process.exitCode = NO_RESULT;
  }
});

async function main() {
  const command = JSON.parse(fs.readFileSync(0, "utf8"));
  const result = await COMMANDS[command.command](command);
  stage = "answered";
  process.stdout.write(JSON.stringify(result), () => process.exit(0));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
