import {
  HEAD_MAX_BYTES,
  LogCheck,
  bindingOf,
  emptyHead,
  fold,
  tipOf,
  unpackRecord,
  type Command,
  type CommitDocument,
  type Tip,
} from '@margay/log';
import type { World } from '../world/world';

const STALL_MS = 45_000;

/** Judges the log by itself: its form, that each commit follows from the one before, and that its runs are whole. */
export function checkLog(world: World, sessionId: string, documents: CommitDocument[]): void {
  const stored = [...world.store.entries.values()].filter(({ document }) => document.sessionId === sessionId).length;
  if (documents.length !== stored) world.fail('hole', `${documents.length} commits in a row of ${stored}`);
  let before: Tip = { head: emptyHead(sessionId), hash: '' };
  const check = new LogCheck(sessionId);
  for (const document of documents) {
    const fault = check.next(document);
    if (fault) world.fail('not verified', `commit ${fault.c}: ${fault.problem}`);
    checkForm(world, document, before);
    checkFold(world, document, before);
    checkEpochs(world, document, before);
    checkWorkspace(world, document, before);
    before = tipOf(document);
  }
  checkCommitIds(world, documents);
  checkStalls(world, documents);
  checkRuns(world, documents);
  checkInbox(world, documents);
}

function checkForm(world: World, document: CommitDocument, before: Tip): void {
  const { _id, head } = document;
  const entry = world.store.entries.get(_id);
  if (entry?.text !== JSON.stringify(document)) world.fail('changed', `${_id} was changed in memory`);
  if (before.head.terminated) world.fail('after the end', `${_id} follows the end of its session`);
  if (Buffer.byteLength(JSON.stringify(head)) > HEAD_MAX_BYTES) world.fail('head size', _id);
  const isTaken = before.head.run?.state === 'running' && before.head.epoch !== head.epoch;
  const fence = document.effects.find(({ kind }) => kind === 'fence');
  if (isTaken && !(fence?.kind === 'fence' && fence.epoch === head.epoch)) world.fail('fence', `${_id} owes one`);
}

/** Folding the commands again over the commit before gives the same document: nothing was decided on another head. */
function checkFold(world: World, document: CommitDocument, before: Tip): void {
  const hashes = new Map(document.commands.map(({ commitId, bodyHash }) => [commitId, bodyHash]));
  const items = commandsOf(world, document).map((command) => ({
    command,
    bodyHash: hashes.get(command.commitId) ?? '',
  }));
  const { document: again, rejected } = fold(before, items, document.ts0);
  for (const { item, rejection } of rejected)
    world.fail('unfounded', `${document._id} holds ${item.command.commitId}: ${rejection.reason}`);
  // The hash is over the whole body.
  if (rejected.length === 0 && again?.hash !== document.hash)
    world.fail('fold', `${document._id} does not follow from the commit before`);
}

function commandsOf(world: World, { _id, sessionId, commands }: CommitDocument): Command[] {
  return commands.flatMap(({ commitId, bodyHash: hash }) => {
    const command = world.history.command(sessionId, commitId, hash);
    if (!command) world.fail('foreign command', `${_id} holds ${commitId}, which nobody sent`);
    return command ? [command] : [];
  });
}

/** A runner's command stands at its own epoch: that of the commit before, which no command before it has raised. */
function checkEpochs(world: World, document: CommitDocument, before: Tip): void {
  let isRaised = false;
  for (const command of commandsOf(world, document)) {
    const { kind } = command;
    if (kind === 'step' || kind === 'finish' || kind === 'release') {
      const isOwn = !isRaised && before.head.epoch === command.epoch && before.head.run?.id === command.runId;
      if (!isOwn) world.fail('fenced commit', `${document._id} holds ${command.commitId} of a fenced epoch`);
    }
    const mayWake = kind === 'interrupt' || kind === 'message' || kind === 'answer' || kind === 'expire';
    const raises = mayWake
      ? before.head.run?.state !== 'running'
      : kind !== 'step' && kind !== 'create' && kind !== 'bind';
    if (raises) isRaised = true;
  }
}

/** Whatever the session is bound to meanwhile, a run works where it began; nobody leaves a workspace unsaid. */
function checkWorkspace(world: World, { _id, head, effects }: CommitDocument, before: Tip): void {
  const [left, next] = [bindingOf(before.head), bindingOf(head)].map((binding) => JSON.stringify(binding));
  if (before.head.c === 0 || left === next) return;
  if (head.run && head.run.id === before.head.run?.id) world.fail('moved', `${_id} moves ${head.run.id}`);
  const isTold = effects.some((effect) => effect.kind === 'leave' && effect.epoch === head.epoch);
  if (!head.run && before.head.runNo > 0 && !isTold) world.fail('moved', `${_id} leaves a workspace unsaid`);
}

/** An active run gets on, whoever dies: it never stands still for longer than a lease, some beats and a long call. */
function checkStalls(world: World, documents: CommitDocument[]): void {
  const times = documents.map(({ _id }) => world.store.entries.get(_id)?.acknowledgedAtMs ?? 0);
  documents.forEach(({ _id, head }, index) => {
    const waitedMs = (times[index + 1] ?? world.time.nowMs) - (times[index] ?? 0);
    if (head.run && head.run.state !== 'waiting' && waitedMs > STALL_MS)
      world.fail('stall', `${head.run.id} for ${waitedMs.toFixed(0)} ms after ${_id}`);
  });
}

function checkCommitIds(world: World, documents: CommitDocument[]): void {
  const seen = new Map<string, string>();
  const lastOfEpoch = new Map<string, number>();
  const refused = refusedIds(world);
  for (const { _id, commitIds } of documents)
    for (const commitId of commitIds) {
      const other = seen.get(commitId);
      if (other !== undefined) world.fail('stored twice', `${commitId} in ${other} and ${_id}`);
      seen.set(commitId, _id);
      const [, epoch, sent] = /^(.*:r\d+\.\d+)\.(\d+)$/.exec(commitId) ?? [];
      if (epoch === undefined) continue;
      let next = (lastOfEpoch.get(epoch) ?? -1) + 1;
      while (next < Number(sent) && refused.has(`${epoch}.${next}`)) next++;
      if (Number(sent) !== next) world.fail('runner order', `${commitId} instead of ${next}`);
      lastOfEpoch.set(epoch, Number(sent));
    }
}

/** Refused, or final: one that is not stored was refused, though its sender may have been handed over before it knew. */
function refusedIds(world: World): Set<string> {
  const refusals = world.history.submissions.filter(
    ({ command, outcome }) => command.kind === 'finish' || (outcome && 'ok' in outcome && !outcome.ok),
  );
  return new Set(refusals.map(({ command }) => command.commitId));
}

interface StoredEvent {
  type: string;
  run_id?: string;
  payload: { text?: string; step?: number };
}

/** Each accepted run has one user, then one assistant and one completion (none of both while it is active). */
function checkRuns(world: World, documents: CommitDocument[]): void {
  const runs = new Map<string, string[]>();
  const thoughts = new Set<string>();
  for (const { events, _id } of documents)
    for (const { frame } of events) {
      const { type, run_id: runId, payload } = JSON.parse(frame) as StoredEvent;
      if (type === 'agent_message') {
        const answer = `${runId} step ${payload.step}`;
        if (thoughts.has(answer)) world.fail('step twice', `${answer} again in ${_id}`);
        thoughts.add(answer);
      }
      if (runId === undefined) continue;
      const types = runs.get(runId) ?? [];
      types.push(type);
      runs.set(runId, types);
    }
  const active = documents.at(-1)?.head.run?.id;
  for (const [runId, types] of runs) {
    const frame = types.filter((type) => ['run_accepted', 'user', 'assistant', 'completion'].includes(type)).join(' ');
    const wanted = runId === active ? 'run_accepted user' : 'run_accepted user assistant completion';
    if (frame !== wanted) world.fail('run events', `${runId}: ${frame}`);
    if (runId !== active && types.at(-1) !== 'completion') world.fail('run events', `${runId} goes on after its end`);
  }
}

/** Every message that came during a run reached its model before it completed. */
function checkInbox(world: World, documents: CommitDocument[]): void {
  let newest = 0;
  let consumed = 0;
  for (const { _id, records, events } of documents)
    for (const text of records) {
      const record = unpackRecord(
        text,
        events.map(({ frame }) => frame),
      );
      if (record.kind === 'run') consumed = newest;
      if (record.kind === 'inbox') newest = Number(record.n);
      if (record.kind === 'consumed') consumed = Number(record.to);
      if (record.kind === 'end' && record.doneReason === 'completed' && consumed < newest)
        world.fail('message lost', `${_id} ends a run with ${newest - consumed} unread`);
    }
}
