import { canonicalJson, type CommitDocument, type Effect } from '@margay/log';
import type { Reader } from './reader';
import type { World } from './world';

/** The rows show what the last commit that owed them says. */
export function checkProjections(world: World, documents: CommitDocument[]): void {
  const { store } = world;
  const runs = new Map<string, { c: number; effect: Effect & { kind: 'run' } }>();
  let session: CommitDocument | undefined;
  for (const document of documents)
    for (const effect of document.effects) {
      if (effect.kind === 'session') session = document;
      if (effect.kind === 'run') runs.set(effect.runId, { c: document.c, effect });
    }
  const row = store.sessions.get(world.sessionId);
  if (session && (row?.c !== session.c || canonicalJson(row.head) !== canonicalJson(session.head)))
    world.fail('session row', `shows commit ${row?.c}, wanted ${session.c}`);
  for (const [runId, { c, effect }] of runs) {
    const found = store.runs.get(runId);
    // A refused claim may have corrected the row from a later head already.
    if (found?.state !== effect.state || found.c < c || (found.c === c && found.owner !== effect.owner))
      world.fail('run row', `${runId} shows ${found?.state} of commit ${found?.c}, wanted ${effect.state} of ${c}`);
  }
  for (const runId of store.runs.keys()) if (!runs.has(runId)) world.fail('run row', `${runId} comes from nowhere`);
}

/** Every reader has exactly the stored frames, byte for byte and in order. */
export function checkReaders(world: World, documents: CommitDocument[], readers: Reader[]): void {
  const frames = documents.flatMap(({ events }) => events);
  for (const { name, frames: got, terminals } of readers) {
    const wrong = frames.findIndex(({ frame }, index) => got[index]?.frame !== frame);
    if (wrong >= 0 || got.length !== frames.length)
      world.fail('frames', `${name} has ${got.length} of ${frames.length}, first wrong: ${wrong}`);
    if (terminals === 0) world.fail('no end', `no stream of ${name} came to its end`);
  }
}
