// A client of the document store in a process of its own, to be killed in the middle of what it does.
// store-client.cjs URL DATABASE race COUNT  tries to insert one document so often at once, says how often it won
// store-client.cjs URL DATABASE write NAME  writes until it is killed, names each document that was acknowledged
const { createHash } = require('node:crypto');
const { MongoClient } = require('mongodb');

const [url, database, mode, argument] = process.argv.slice(2);
const LANES = 4;
const OPTIONS = { writeConcern: { w: 'majority', journal: true }, retryWrites: true, serverSelectionTimeoutMS: 2_000 };

async function race(documents, count) {
  // Both sides begin at the same moment.
  await new Promise((resolve) => setTimeout(resolve, Number(process.env.START_AT_MS) - Date.now()));
  const inserts = Array.from({ length: count }, (_, i) =>
    documents.insertOne({ _id: 'raced', by: `${process.pid} ${i}` }).then(
      () => 'won',
      (error) => (error.code === 11_000 ? 'lost' : `failed: ${error.message}`),
    ),
  );
  const outcomes = await Promise.all(inserts);
  const won = outcomes.filter((outcome) => outcome === 'won').length;
  const failed = outcomes.filter((outcome) => outcome.startsWith('failed')).length;
  process.stdout.write(`${JSON.stringify({ won, failed })}\n`);
  process.exit();
}

/** Documents that say themselves whether they are whole, each with a field that is set in a second write. */
async function write(documents, name, lane) {
  for (let n = 0; ; n++) {
    const text = `${name} ${lane} ${n} `.repeat(1_000);
    const _id = `${name}.${lane}.${n}`;
    const sum = createHash('sha256').update(text).digest('hex');
    await documents.insertOne({ _id, sessionId: name, commitIds: [`${_id}.a`, `${_id}.b`], text, sum });
    process.stdout.write(`inserted ${_id}\n`);
    await documents.updateOne({ _id, rev: { $exists: false } }, { $set: { rev: 1 } });
    process.stdout.write(`updated ${_id}\n`);
  }
}

async function main() {
  const client = await new MongoClient(url, OPTIONS).connect();
  const documents = client.db(database).collection('written');
  process.stdout.write('ready\n');
  if (mode === 'race') return race(documents, Number(argument));
  const lanes = Array.from({ length: LANES }, (_, lane) => write(documents, argument, lane));
  // The store may be gone: what was not acknowledged does not count.
  await Promise.allSettled(lanes);
  process.exit();
}

void main();
