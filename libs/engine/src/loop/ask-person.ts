import { RunStopped, type InboxItem, type ToolInvocation, type ToolOutcome } from '../ports';
import type { AskedQuestions } from '../tools/ask-user-question';
import type { AgentRun } from './agent-run';

type Decision = Extract<InboxItem, { kind: 'answer' }>;

const TOKEN_CHARS = 32;

/**
 * Asks a person and waits for what the log decides: an answer, or an end without one. After a while in place the run is
 * given back, so that nobody holds a runner for a person; the next owner finds the decision in its inbox.
 * @throws RunStopped `waiting` once the run is given back
 */
export async function askPerson(run: AgentRun, invocation: ToolInvocation): Promise<ToolOutcome> {
  const { callId } = invocation;
  if (!run.state.hasAsked(callId)) ask(run, invocation);
  const decided = (await decisionOf(run, callId, run.limits.waitGraceMs)) ?? (await giveBack(run, callId));
  return { status: 'ok', result: decided.text };
}

function ask(run: AgentRun, { callId, args }: ToolInvocation): void {
  const { questions, timeout_seconds = null, notes_placeholder = null } = args as unknown as AskedQuestions;
  const payload = {
    call_id: callId,
    call_token: run.ports.ids.hex(TOKEN_CHARS),
    questions: questions.map(({ options = [], multi_select = false, ...question }) => ({ ...question, options, multi_select })), // prettier-ignore
    timeout_seconds,
    notes_placeholder,
  };
  void run.writer.commit({
    events: [{ type: 'user_question', payload }],
    records: [],
    questions: [{ callId, timeoutSeconds: timeout_seconds }],
  });
  run.state.apply({ kind: 'question', callId });
}

async function giveBack(run: AgentRun, callId: string): Promise<Decision> {
  for (;;) {
    const inboxEnd = run.ports.inbox.since(run.consumedTo).at(-1)?.n ?? run.consumedTo;
    const asked = run.ports.journal.wait({ for: [callId], inboxEnd });
    if ((await asked) === 'released') throw new RunStopped('waiting');
    const decided = await decisionOf(run, callId, run.limits.waitGraceMs);
    if (decided) return decided;
  }
}

/** The decision, as soon as it is here; undefined if it does not come in time. */
async function decisionOf(run: AgentRun, callId: string, limitMs: number): Promise<Decision | undefined> {
  const find = (): Decision | undefined =>
    run.ports.inbox
      .since(run.consumedTo)
      .find((item): item is Decision => item.kind === 'answer' && item.callId === callId);
  const waiting = new AbortController();
  const wake = (): void => {
    if (find()) waiting.abort();
  };
  const stopListening = run.ports.inbox.onItem(wake);
  const onStop = (): void => waiting.abort();
  run.stop.addEventListener('abort', onStop, { once: true });
  wake();
  if (!waiting.signal.aborted) await run.ports.clock.sleep(limitMs, waiting.signal);
  run.stop.removeEventListener('abort', onStop);
  stopListening();
  run.stop.throwIfAborted();
  return find();
}
