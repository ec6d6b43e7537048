import { randomBytes } from 'node:crypto';
import type { Command } from '@margay/log';
import { createLogger, printsOf, SecretMatcher } from '@margay/platform';
import { ANY_RUN } from '../sessions/run-request';
import { CommitMasking } from './commit-masking';

const key = randomBytes(32);
const secrets = [
  { name: 'git/team', owner: '', value: 'token-of-the-team' },
  { name: 'mine', owner: 'user:ada', value: 'token-of-ada' },
  { name: 'odd', owner: '', value: 'completed' },
  { name: 'part', owner: '', value: 'provider' },
  { name: 'long', owner: '', value: 'duration_ms' },
];
const matcher = new SecretMatcher(key, printsOf(key, secrets));
const told: { audit?: object }[] = [];
const logger = createLogger({ write: (line) => void told.push(JSON.parse(line) as object) });
const found: string[] = [];
const masking = new CommitMasking(
  { of: () => Promise.resolve({ etag: '', key, prints: [], matcher }) },
  { found: (kind) => void found.push(kind) },
  logger,
);
const place = { tenantId: 't', sessionId: 's' };
const mask = (command: Command, run?: string) =>
  masking.mask(command, { ...place, head: run === undefined ? undefined : ({ run: { principal: run } } as never) });

beforeEach(() => {
  told.length = 0;
  found.length = 0;
});

const step = (text: string): Command => ({
  kind: 'step',
  commitId: 'c',
  runId: 's:r1',
  epoch: 1,
  events: [{ type: 'tool_result', payload: { result: text } } as never],
  records: [{ kind: 'completed', text: { deep: [text] } } as never],
});

it('masks what a tool said in the events and records of a step, and tells it', async () => {
  const masked = await mask(step('it is token-of-the-team!'));
  expect(masked).toMatchObject({
    events: [{ type: 'tool_result', payload: { result: 'it is [secret:git/team]!' } }],
    records: [{ text: { deep: ['it is [secret:git/team]!'] } }],
  });
  expect(found).toEqual(['secret']);
  expect(told).toEqual([
    expect.objectContaining({
      level: 'warn',
      audit: expect.objectContaining({
        action: 'secret.masked',
        tenantId: 't',
        sessionId: 's',
        place: 'commit',
      }) as object,
    }),
  ]);
});

it('masks what people say, in words, context and answers', async () => {
  const run = {
    ...ANY_RUN,
    text: 'use token-of-the-team',
    context: { note: 'token-of-the-team' },
    principal: 'user:bob',
  };
  const said = { text: 'use [secret:git/team]', context: { note: '[secret:git/team]' } };
  expect(await mask({ kind: 'message', commitId: 'c', run })).toMatchObject({ run: said });
  const answer = { callId: 'q', answers: ['token-of-the-team'], notes: 'token-of-the-team', via: 'rest' };
  expect(await mask({ kind: 'answer', commitId: 'c', ...answer, text: 'token-of-the-team', late: run })).toMatchObject({
    answers: ['[secret:git/team]'],
    notes: '[secret:git/team]',
    text: '[secret:git/team]',
    late: said,
  });
});

it("looks for a member's own secrets where he speaks, and in his runs", async () => {
  const run = { ...ANY_RUN, text: 'token-of-ada', principal: 'user:ada' };
  expect(await mask({ kind: 'accept', commitId: 'c', run })).toMatchObject({ run: { text: '[secret:mine]' } });
  expect(await mask(step('token-of-ada'), 'user:ada')).toMatchObject({
    events: [{ payload: { result: '[secret:mine]' } }],
  });
  expect(await mask(step('token-of-ada'), 'user:bob')).toMatchObject({
    events: [{ payload: { result: 'token-of-ada' } }],
  });
});

it('leaves alone what holds a log together, whatever somebody calls a secret', async () => {
  const completion = { done: true, done_reason: 'completed', task_result: 'completed' };
  const finish = { ...step(''), kind: 'finish', text: 'completed', completion } as Command;
  expect(await mask(finish)).toMatchObject({
    text: '[secret:odd]',
    completion: { done: true, done_reason: 'completed', task_result: '[secret:odd]' },
    records: [{ kind: 'completed' }],
  });
  const call = { callId: 'c1', providerCallId: 'p1', name: 'shell', argumentsText: 'provider' };
  const calls = { ...step(''), events: [{ type: 'tool_result', payload: { duration_ms: 1 } }], records: [{ kind: 'assistant', toolCalls: [call] }] }; // prettier-ignore
  expect(await mask(calls as never)).toMatchObject({
    events: [{ payload: { duration_ms: 1 } }],
    records: [{ toolCalls: [{ ...call, argumentsText: '[secret:part]' }] }],
  });
});

it('leaves a call its tool, whatever somebody calls a secret: providers refuse other names', async () => {
  const call = { callId: 'c1', providerCallId: 'p1', name: 'mcp__provider__query', argumentsText: '{"a":"provider"}' };
  const calls = { ...step(''), records: [{ kind: 'assistant', toolCalls: [call] }] };
  expect(await mask(calls as never)).toMatchObject({
    records: [{ toolCalls: [{ ...call, argumentsText: '{"a":"[secret:part]"}' }] }],
  });
});

it('returns the very command where there is nothing to look at', async () => {
  const claim: Command = { kind: 'claim', commitId: 'c', runId: 'completed', epoch: 1, owner: 'completed' };
  expect(await mask(claim)).toBe(claim);
  expect(told).toEqual([]);
});
