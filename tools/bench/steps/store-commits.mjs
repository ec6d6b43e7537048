// The store's own part: commits of a real run inserted through the session service's adapter, with its write concern
// and its indexes, and nothing around them.
import { performance } from 'node:perf_hooks';
import mongoose from 'mongoose';
import { MongoCommitStore } from '../../../services/session/dist/index.js';

const { calculateObjectSize } = mongoose.mongo.BSON;

export function commitStoreOn(connection) {
  return new MongoCommitStore(connection.collection('commits'), connection.collection('sessions'));
}

/** The same commits as another session's. */
function renamed(documents, name) {
  return documents.map((document, index) => ({
    ...document,
    _id: `${name}.${String(document.c).padStart(10, '0')}`,
    sessionId: name,
    commitIds: [`${name}.${index}`],
    effectsDueAt: null,
  }));
}

/** Milliseconds of each insert: one after the other, or by `writers` sessions at once. */
export async function measureInserts(connection, documents, { writers = 1 } = {}) {
  const store = commitStoreOn(connection);
  await store.createIndexes();
  const startMs = performance.now();
  const perWriter = await Promise.all(
    Array.from({ length: writers }, async (_, index) => {
      const insertsMs = [];
      for (const document of renamed(documents, `store${writers}x${index}`)) {
        const beforeMs = performance.now();
        await store.insert(document);
        insertsMs.push(performance.now() - beforeMs);
      }
      return insertsMs;
    }),
  );
  const insertsMs = perWriter.flat();
  return { insertsMs, perSecond: (insertsMs.length / (performance.now() - startMs)) * 1000 };
}

/** `{ commits, bytes, contentBytes, parts }` of the stored commits behind number `afterC`. */
export async function storedSize(connection, sessionId, afterC) {
  const documents = await connection
    .collection('commits')
    .find({ _id: { $gt: `${sessionId}.${String(afterC).padStart(10, '0')}`, $lt: `${sessionId}.:` } })
    .sort({ _id: 1 })
    .toArray();
  const sizes = documents.map((document) => calculateObjectSize(document));
  const total = (numbers) => numbers.reduce((sum, number) => sum + number, 0);
  const partOf = (name) => total(documents.map((document) => calculateObjectSize({ [name]: document[name] })));
  const parts = Object.fromEntries(Object.keys(documents[0] ?? {}).map((name) => [name, partOf(name)]));
  const half = Math.floor(documents.length / 2);
  return {
    commits: documents.length,
    bytes: total(sizes),
    contentBytes: total(documents.flatMap(({ events }) => events.map(({ frame }) => contentOf(JSON.parse(frame))))),
    growth: total(sizes.slice(half)) / (documents.length - half) / (total(sizes.slice(0, half)) / half),
    parts,
  };
}

/** What was said and done, once: the words of people and model, arguments, results. */
function contentOf({ type, payload }) {
  const bytes = (value) => Buffer.byteLength(typeof value === 'string' ? value : JSON.stringify(value ?? ''));
  if (type === 'tool_call') return bytes(payload.tool_input);
  if (type === 'tool_result') return bytes(payload.result);
  return ['user', 'assistant', 'agent_message'].includes(type) ? bytes(payload.text) : 0;
}
