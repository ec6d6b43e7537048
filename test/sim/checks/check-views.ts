import { canonicalJson, type CommitDocument, type Effect } from '@margay/log';
import { isCut, type Reader } from '../streams/reader';
import type { World } from '../world/world';

/** The rows show what the last commit that owed them says. */
export function checkProjections(world: World, sessionId: string, documents: CommitDocument[]): void {
  const { store } = world;
  const runs = new Map<string, { c: number; effect: Effect & { kind: 'run' } }>();
  let session: CommitDocument | undefined;
  for (const document of documents)
    for (const effect of document.effects) {
      if (effect.kind === 'session') session = document;
      if (effect.kind === 'run') runs.set(effect.runId, { c: document.c, effect });
    }
  const row = store.sessions.get(sessionId);
  if (session && (row?.c !== session.c || canonicalJson(row.head) !== canonicalJson(session.head)))
    world.fail('session row', `shows commit ${row?.c}, wanted ${session.c}`);
  for (const [runId, { c, effect }] of runs) {
    const found = store.runs.get(runId);
    // A refused claim may have corrected the row from a later head already.
    if (found?.state !== effect.state || found.c < c || (found.c === c && found.owner !== effect.owner))
      world.fail('run row', `${runId} shows ${found?.state} of commit ${found?.c}, wanted ${effect.state} of ${c}`);
  }
  for (const [runId, run] of store.runs)
    if (run.sessionId === sessionId && !runs.has(runId)) world.fail('run row', `${runId} comes from nowhere`);
}

/** Every reader has exactly the stored frames, byte for byte and in order; of those cut meanwhile some or none. */
export function checkReaders(world: World, documents: CommitDocument[], readers: Reader[]): void {
  const frames = documents.flatMap(({ events }) => events);
  const cuts = documents.at(-1)?.head.cuts ?? [];
  for (const { name, frames: got, terminals, isNewcomer } of readers) {
    const bySeq = new Map(got.map((frame) => [frame.seq, frame]));
    const wrong = frames.find(({ seq, frame }) => (bySeq.get(seq)?.frame ?? (isCut(cuts, seq) ? frame : '')) !== frame);
    if (wrong || bySeq.size > frames.length)
      world.fail('frames', `${name} has ${got.length} of ${frames.length}, first wrong: ${wrong?.seq}`);
    if (isNewcomer && got.some(({ seq }) => isCut(cuts, seq))) world.fail('cut frame', `${name} got what was cut`);
    if (terminals === 0) world.fail('no end', `no stream of ${name} came to its end`);
  }
}
