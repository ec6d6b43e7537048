import { isoMicros } from '@margay/contracts';
import { canonicalJson, sha256Hex } from './canonical';
import type { Command, Rejection } from './command';
import { decide } from './decide';
import { ALL_DECIDE_RULES, isRejected, type DecideRules, type DecidedEvent } from './decision';
import { commitKey, type CommitDocument, type StoredCommand, type StoredFrame, type Tip } from './document';
import { effectsOf } from './effects';
import type { Head } from './head';
import { packRecord } from './references';

/** After this long unmarked effects are the janitor's. */
const EFFECTS_GRACE_MS = 1_500;

export interface Fold<T extends { command: Command }> {
  /** Undefined where no command was accepted. */
  document: CommitDocument | undefined;
  accepted: T[];
  rejected: { item: T; rejection: Rejection }[];
}

/**
 * Tells a repeat of a command from another one under the same commit id. Facts that differ between two attempts of one
 * request are left out: its trace, the version of the replica that took it, what that replica had counted, and
 * why somebody found that a run must change hands.
 */
export function bodyHash(command: Command): string {
  if ('run' in command && command.run.requestHash !== undefined) return command.run.requestHash;
  const { commitId: _, ...body } = command;
  return sha256Hex(canonicalJson(requestOf(body as Command)));
}

function requestOf(command: Command): object {
  switch (command.kind) {
    case 'accept':
    case 'message':
    case 'recover': {
      const { traceparent: _trace, isolation: _isolation, options, ...run } = command.run;
      return { ...command, run: { ...run, options: { ...options, engineVersion: undefined } } };
    }
    case 'terminate':
    case 'expire':
      return { kind: command.kind };
    case 'answer':
      return { ...command, late: undefined };
    // What the index of the project said at that moment.
    case 'bind':
      return { ...command, context: undefined };
    case 'takeover':
    case 'release':
      return { ...command, cause: undefined };
    default:
      return command;
  }
}

/**
 * Folds commands over the end of a log into the one document that would follow it. Pure in (tip, items, time): built
 * once per commit number, and sent with the same bytes on every retry.
 * @param nowMicros wall clock; the document's times are later than all before them whatever it says
 */
export function fold<T extends { command: Command; bodyHash: string }>(
  tip: Tip,
  items: readonly T[],
  nowMicros: number,
  rules: DecideRules = ALL_DECIDE_RULES,
): Fold<T> {
  const firstTs = rules.timesRise ? Math.max(nowMicros, tip.head.ts + 1) : nowMicros;
  let head = tip.head;
  const events: DecidedEvent[] = [];
  const records: object[] = [];
  const commands: StoredCommand[] = [];
  const accepted: T[] = [];
  const rejected: Fold<T>['rejected'] = [];
  for (const item of items) {
    // A command sees what those before it in the batch did: that the session exists, and how far its events reach.
    const seen = accepted.length > 0 ? { ...head, ...end(tip, firstTs, events.length) } : head;
    const decision = decide(seen, item.command, firstTs + events.length, rules);
    if (isRejected(decision)) {
      rejected.push({ item, rejection: decision.reject });
      continue;
    }
    head = decision.head;
    events.push(...decision.events);
    records.push(...decision.records);
    commands.push({ commitId: item.command.commitId, bodyHash: item.bodyHash, answer: decision.answer });
    accepted.push(item);
  }
  if (accepted.length === 0) return { document: undefined, accepted, rejected };
  return { document: build(tip, head, firstTs, events, records, commands, nowMicros), accepted, rejected };
}

function build(
  tip: Tip,
  decided: Head,
  firstTs: number,
  events: DecidedEvent[],
  records: object[],
  commands: StoredCommand[],
  nowMicros: number,
): CommitDocument {
  const c = tip.head.c + 1;
  const { sessionId } = decided;
  const frames = events.map(({ event, runId }, index) =>
    frame(event, runId, tip.head.seq + 1 + index, firstTs + index),
  );
  const head: Head = { ...decided, ...end(tip, firstTs, frames.length) };
  const payloads = events.map(({ event }) => event.payload);
  const effects = effectsOf(tip.head, head, askedIn(events, records, firstTs));
  const body: Omit<CommitDocument, 'hash' | 'effectsDueAt'> = {
    _id: commitKey(sessionId, c),
    v: 1,
    tenantId: head.tenantId,
    sessionId,
    c,
    commitIds: commands.map(({ commitId }) => commitId),
    commands,
    events: frames,
    records: records.map((record) => packRecord(record, payloads)),
    head,
    effects,
    ts0: firstTs,
  };
  const effectsDueAt = effects.length > 0 ? Math.floor(nowMicros / 1000) + EFFECTS_GRACE_MS : null;
  return { ...body, effectsDueAt, hash: hashOf(tip.hash, body) };
}

/** Where the log ends with a commit of so many events. */
function end({ head }: Tip, firstTs: number, events: number): Pick<Head, 'c' | 'seq' | 'ts'> {
  return { c: head.c + 1, seq: head.seq + events, ts: firstTs + Math.max(0, events - 1) };
}

/** Questions that the commit opens, also those that it closes again. */
function askedIn(events: DecidedEvent[], records: object[], firstTs: number): { callId: string; ts: number }[] {
  const asked = (records as { kind: string; callId?: string }[]).filter(({ kind }) => kind === 'question');
  return asked.flatMap(({ callId = '' }) => {
    const index = events.findIndex(({ event: { type, payload } }) => type === 'user_question' && payload['call_id'] === callId); // prettier-ignore
    return index === -1 ? [] : [{ callId, ts: firstTs + index }];
  });
}

/** The stored bytes of a public event. Field order is part of the contract: clients compare texts. */
export function frame(event: DecidedEvent['event'], runId: string | null, seq: number, ts: number): StoredFrame {
  const text = JSON.stringify({
    ts: isoMicros(ts),
    type: event.type,
    payload: event.payload,
    seq,
    ...(runId === null ? {} : { run_id: runId }),
  });
  return { seq, ts, frame: text };
}

/** Hash of a commit: over the previous one's hash and everything but `hash` and `effectsDueAt`. */
export function hashOf(previousHash: string, document: Omit<CommitDocument, 'hash' | 'effectsDueAt'>): string {
  const { hash: _hash, effectsDueAt: _due, ...body } = document as CommitDocument;
  return sha256Hex(`${previousHash}\n${canonicalJson(body)}`);
}
