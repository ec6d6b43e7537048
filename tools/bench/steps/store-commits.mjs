// The store's own part: commits of a real run inserted through the session service's adapter, with its write concern
// and its indexes, and nothing around them.
import { performance } from 'node:perf_hooks';
import mongoose from 'mongoose';
import { commitKey } from '../../../libs/log/dist/index.js';
import { MongoCommitStore } from '../../../services/session/dist/index.js';

const { calculateObjectSize } = mongoose.mongo.BSON;

export function commitStoreOn(connection) {
  return new MongoCommitStore(connection.collection('commits'), connection.collection('sessions'));
}

/** The same commits as another session's. */
function renamed(documents, name) {
  return documents.map((document, index) => ({
    ...document,
    _id: commitKey(name, document.c),
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

/** The commits of a session behind number `afterC`, as the session service reads them. */
export async function readCommits(connection, sessionId, afterC) {
  const documents = [];
  for await (const document of commitStoreOn(connection).range(sessionId, afterC + 1)) documents.push(document);
  return documents;
}

/** `{ commits, bytes, contentBytes, growth, parts }` of the commits behind number `afterC`, as they are stored. */
export async function storedSize(connection, sessionId, afterC) {
  const range = { $gt: commitKey(sessionId, afterC), $lt: `${sessionId}.:` };
  const stored = await connection.collection('commits').find({ _id: range }).sort({ _id: 1 }).toArray();
  const sizes = stored.map((document) => calculateObjectSize(document));
  const total = (numbers) => numbers.reduce((sum, number) => sum + number, 0);
  const partOf = (name) => total(stored.map((document) => calculateObjectSize({ [name]: document[name] })));
  const names = new Set(stored.flatMap((document) => Object.keys(document)));
  const half = Math.floor(stored.length / 2);
  const frames = (await readCommits(connection, sessionId, afterC)).flatMap(({ events }) => events);
  return {
    commits: stored.length,
    bytes: total(sizes),
    contentBytes: total(frames.map(({ frame }) => contentOf(JSON.parse(frame)))),
    growth: total(sizes.slice(half)) / (stored.length - half) / (total(sizes.slice(0, half)) / half),
    parts: Object.fromEntries([...names].map((name) => [name, partOf(name)])),
  };
}

/** What was said and done, once: the words of people and model, arguments, results. */
function contentOf({ type, payload }) {
  const bytes = (value) => Buffer.byteLength(typeof value === 'string' ? value : JSON.stringify(value ?? ''));
  if (type === 'tool_call') return bytes(payload.tool_input);
  if (type === 'tool_result') return bytes(payload.result);
  return ['user', 'assistant', 'agent_message'].includes(type) ? bytes(payload.text) : 0;
}
