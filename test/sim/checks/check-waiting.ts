import { unpackRecord, type CommitDocument } from '@margay/log';
import type { World } from '../world/world';

interface Decision {
  callId: string;
  text: string;
  runId: string | undefined;
}

/** Nobody waits for what is decided, and what a person decided is what the model got. */
export function checkWaiting(world: World, documents: CommitDocument[]): void {
  const decisions: Decision[] = [];
  const results = new Map<string, string>();
  const finished = new Set<string>();
  const askedBy = new Map<string, string>();
  for (const { _id, head, events, records } of documents) {
    const { run, questions = [], lastRun } = head;
    const open = new Set(questions.map(({ callId }) => callId));
    if (run?.state === 'waiting' && !run.waiting?.for.every((callId) => open.has(callId)))
      world.fail('waits for nothing', `${run.id} after ${_id}`);
    if (!run && questions.length > 0) world.fail('question without a run', _id);
    if (lastRun && lastRun.doneReason === 'completed') finished.add(lastRun.id);
    const frames = events.map(({ frame }) => frame);
    for (const frame of frames) noteQuestion(frame, askedBy);
    for (const text of records) {
      const record = unpackRecord(text, frames);
      if (record.kind === 'inbox' && 'callId' in record)
        decisions.push({
          callId: String(record.callId),
          text: String(record.text),
          runId: askedBy.get(String(record.callId)),
        });
      if (record.kind === 'tool' && 'callId' in record) results.set(String(record.callId), String(record['text']));
    }
  }
  checkDecisions(world, decisions, results, finished);
}

function noteQuestion(frame: string, askedBy: Map<string, string>): void {
  if (!frame.includes('"type":"user_question"')) return;
  const { payload, run_id: runId = '' } = JSON.parse(frame) as { payload: { call_id: string }; run_id?: string };
  askedBy.set(payload.call_id, runId);
}

function checkDecisions(
  world: World,
  decisions: Decision[],
  results: Map<string, string>,
  finished: Set<string>,
): void {
  const seen = new Set<string>();
  for (const { callId, text, runId = '' } of decisions) {
    if (seen.has(callId)) world.fail('decided twice', callId);
    seen.add(callId);
    world.count('question decided');
    const result = results.get(callId);
    if (result === undefined ? finished.has(runId) : !result.includes(text))
      world.fail('answer lost', `${callId} was decided as ${text}, the model got ${result}`);
  }
}
