import { randomBytes } from 'node:crypto';
import type { executorPb, RunGrant } from '@margay/contracts';
import { InternalError, UnavailableError } from '@margay/errors';
import { createLogger, printsOf, SecretMatcher } from '@margay/platform';
import { Registry } from 'prom-client';
import { MaskedCalls } from './masked-calls';

type Response = executorPb.ExecuteResponse;

const key = randomBytes(32);
const secrets = [
  { name: 'git/team', owner: '', value: 'token-of-the-team' },
  { name: 'mine', owner: 'user:ada', value: 'token-of-ada' },
  { name: '_canary', owner: '', value: 'bird-of-the-tenant' },
];
const matcher = new SecretMatcher(key, printsOf(key, secrets));
const grant = { tenantId: 't', sessionId: 's', runId: 's:r1', principal: 'user:ada' } as RunGrant;
const told: string[] = [];
const logger = createLogger({ write: (line) => void told.push(line) });
let registry: Registry;
let calls: MaskedCalls;

beforeEach(() => {
  told.length = 0;
  registry = new Registry();
  calls = new MaskedCalls({ of: () => Promise.resolve(matcher) }, registry, logger);
});

const output = (text: string, offset = 0, stream = 'stdout'): Response => ({
  message: { $case: 'output', value: { stream, offset, bytes: Buffer.from(text) } },
});
const finished = (result: unknown): Response => ({
  message: {
    $case: 'finished',
    value: { status: 'ok', resultJson: JSON.stringify(result), limitHit: '', changedFiles: [], durationMs: 1, unchanged: false }, // prettier-ignore
  },
});

async function* stream(...items: (Response | Error)[]): AsyncIterable<Response> {
  for (const item of items) {
    if (item instanceof Error) throw item;
    yield await Promise.resolve(item);
  }
}

async function masked(...items: (Response | Error)[]): Promise<Response[]> {
  const passed: Response[] = [];
  for await (const response of calls.mask(stream(...items), grant, 'c1')) passed.push(response);
  return passed;
}

const textOf = (responses: Response[], name = 'stdout') =>
  responses
    .flatMap(({ message }) => (message?.$case === 'output' && message.value.stream === name ? [message.value] : []))
    .map(({ bytes }) => bytes.toString())
    .join('');

it('keeps a secret out of output and result, however the output is cut', async () => {
  const text = 'it is token-of-the-team!';
  const pieces = [...text].map((letter, at) => output(letter, at));
  const passed = await masked(...pieces, finished({ stdout: text, exit_code: 0 }));
  expect(textOf(passed)).toBe('it is [secret:git/team]!');
  const end = passed.at(-1)?.message;
  expect(end?.$case === 'finished' && JSON.parse(end.value.resultJson)).toEqual({
    stdout: 'it is [secret:git/team]!',
    exit_code: 0,
  });
  expect(await registry.metrics()).toContain('margay_tool_secrets_masked_total{kind="secret"} 1');
  expect(told.map((line) => (JSON.parse(line) as { audit: object }).audit)).toEqual([
    expect.objectContaining({ action: 'secret.masked', tenantId: 't', sessionId: 's', toolCallId: 'c1' }),
  ]);
});

it('takes the streams of a call apart', async () => {
  const passed = await masked(output('token-of', 0), output('token-of-the-', 0, 'stderr'), output('-the-team', 8), finished(null)); // prettier-ignore
  expect(textOf(passed)).toBe('[secret:git/team]');
  expect(textOf(passed, 'stderr')).toBe('token-of-the-');
});

it('keeps out the own secrets of the member whose run it is', async () => {
  const [end] = await masked(finished('token-of-ada'));
  expect(end).toMatchObject({ message: { value: { resultJson: '"[secret:mine]"' } } });
  expect(await calls.maskText('@file: token-of-ada', { ...grant, principal: 'user:bob' })).toBe('@file: token-of-ada');
});

it('keeps secrets out of notices and errors', async () => {
  const notice: Response = { message: { $case: 'notice', value: { type: 'run_note', payloadJson: '{"a":"token-of-the-team"}' } } }; // prettier-ignore
  expect(await masked(notice)).toMatchObject([{ message: { value: { payloadJson: '{"a":"[secret:git/team]"}' } } }]);
  const failed = masked(new InternalError('broken', 'no token-of-the-team here'));
  await expect(failed).rejects.toMatchObject({
    code: 'INTERNAL',
    reason: 'broken',
    message: 'no [secret:git/team] here',
  });
});

it('tells that a canary was met, and not what it is', async () => {
  await masked(finished('bird-of-the-tenant'));
  expect(await registry.metrics()).toContain('margay_tool_secrets_masked_total{kind="canary"} 1');
  expect(JSON.parse(told[0] ?? '')).toMatchObject({
    level: 'error',
    audit: { action: 'secret.canary_hit', place: 'tool' },
  });
  expect(told.join()).not.toContain('bird-of-the-tenant');
});

it('gives nothing of a call away while nobody says what is secret', async () => {
  const asked = () => Promise.reject(new UnavailableError('secrets_unknown', 'session is away'));
  calls = new MaskedCalls({ of: asked }, new Registry(), logger);
  await expect(masked(output('token-of-the-team'))).rejects.toMatchObject({ reason: 'secrets_unknown' });
});
