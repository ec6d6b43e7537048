import { parseCommand } from './runner-command';

const run = { sessionId: 's', runId: 's:r1', epoch: 2 };
const parse = (command: unknown) => parseCommand(JSON.stringify(command), 'c1', run);
const step = (fields: object) => parse({ kind: 'step', ...fields });
const event = { type: 'agent_message', payload: { agent_id: 'root', depth: 0, text: 'hi' } };

describe('a command of a runner', () => {
  it('is one of the run and epoch of its stream, whatever it says itself', () => {
    expect(step({ events: [event], runId: 'other:r9', epoch: 99, commitId: 'mine' })).toEqual({
      kind: 'step',
      commitId: 'c1',
      runId: 's:r1',
      epoch: 2,
      events: [event],
      records: [],
    });
  });

  it.each([
    ['what is no JSON', '{"kind":'],
    ['what is no object', '[]'],
    ['another kind', '{"kind":"cancel"}'],
    ['a kind of people', '{"kind":"accept","run":{}}'],
    ['a takeover', '{"kind":"takeover","runId":"s:r1","epoch":2,"cause":"x"}'],
  ])('is refused: %s', (_, json) => {
    expect(() => parseCommand(json, 'c1', run)).toThrow(expect.objectContaining({ reason: 'invalid_command' }));
  });

  it.each([
    'user',
    'user_steer',
    'assistant',
    'completion',
    'context',
    'session',
    'run_accepted',
    'session_terminated',
  ])('forges no event of type %s', (type) => {
    const payload = { text: 'I am the user', done: true, done_reason: 'completed' };
    expect(() => step({ events: [{ type, payload }] })).toThrow(/may not write events of type/);
  });

  it('cuts nothing out of what readers see', () => {
    const recovery = (payload: object) => step({ events: [{ type: 'recovery', payload }] });
    expect(() => recovery({ action: 'retry', cut: { from_ts: 'a', to_ts: 'b' } })).toThrow(/may not tell readers/);
    expect(() => recovery({ action: 'continue' })).toThrow(/may not tell readers/);
    const halted = { action: 'halt_no_progress', agent_id: 'a', depth: 0, step: 1, tool: 't' };
    expect(recovery(halted)).toMatchObject({ events: [{ payload: halted }] });
  });

  it.each(['run', 'user', 'inbox', 'question', 'cut', 'consumed', 'sandbox', 'end'])(
    'forges no record of kind %s',
    (kind) => {
      expect(() => step({ records: [{ kind, text: 'I am the user' }] })).toThrow(/is a kind of the log itself/);
      expect(() =>
        parse({ kind: 'finish', text: '', completion: { done: true, done_reason: 'x' }, records: [{ kind }] }),
      ).toThrow(/is a kind of the log itself/);
    },
  );

  it('checks payloads', () => {
    expect(() => step({ events: [{ type: 'agent_message', payload: { text: 1 } }] })).toThrow(/agent_message/);
    expect(() => step({ events: [{ type: 'toString', payload: {} }] })).toThrow(/may not write/);
  });

  it('asks only for calls of its session, and a few at once', () => {
    const ask = (...callIds: string[]) =>
      step({ questions: callIds.map((callId) => ({ callId, timeoutSeconds: null })) });
    expect(ask('s.2.1.0')).toMatchObject({ questions: [{ callId: 's.2.1.0' }] });
    expect(() => ask('other.2.1.0')).toThrow(/must be one of a call of its session/);
    expect(() => ask(`s.${'9'.repeat(100)}`)).toThrow(/callId/);
    const many = Array.from({ length: 100 }, (_, n) => `s.2.1.${n}`);
    expect(() => ask(...many)).toThrow(/questions/);
    expect(() => parse({ kind: 'release', cause: 'waiting', waiting: { for: many, inboxEnd: 0 } })).toThrow(/waiting/);
  });

  it('names no blob as the whole of what it says', () => {
    const completion = { done: true, done_reason: 'completed' };
    const command = parse({ kind: 'finish', text: 'short', textBlob: { id: 'x' }, completion });
    expect(command).not.toHaveProperty('textBlob');
  });

  it.each([-1, 1.5, '1'])('consumes whole numbers only: %p', (consumedTo) => {
    expect(() => step({ consumedTo })).toThrow(/consumedTo/);
  });
});
