import { randomBytes } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { answer, byConversation, callTools } from '@margay/testing';
import { PlatformHarness } from './harness';
import { OtlpCollector, type CollectedSpan } from './otlp-collector';

jest.setTimeout(180_000);

const MODEL_KEY = `modelkey${randomBytes(12).toString('hex')}`;
const CANARIES = {
  prompt: `prompt${randomBytes(12).toString('hex')}`,
  file: `file${randomBytes(12).toString('hex')}`,
  argument: `argument${randomBytes(12).toString('hex')}`,
  answer: `answer${randomBytes(12).toString('hex')}`,
};

let collector: OtlpCollector;
let margay: PlatformHarness;

beforeAll(async () => {
  collector = await OtlpCollector.start();
  const env = {
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
    OTEL_BSP_SCHEDULE_DELAY: '100',
    MARGAY_LOG_LEVEL: 'debug',
    OPENAI_API_KEY: MODEL_KEY,
  };
  margay = new PlatformHarness({ mode: 'split', runners: 2, env });
  await margay.start();
}, 600_000);
afterAll(async () => {
  await margay?.stop();
  await collector?.close();
}, 180_000);

async function until(holds: () => boolean): Promise<void> {
  for (let tries = 0; tries < 1_200 && !holds(); tries += 1) await new Promise((resolve) => setTimeout(resolve, 50));
}

async function runOf(sessionId: string): Promise<{ accepted: string; completed: string }> {
  const events = (await margay.storedFrames(sessionId)).map(
    (text) => JSON.parse(text) as { type: string; payload: { trace_id?: string } },
  );
  const traceOf = (type: string) => String(events.find((event) => event.type === type)?.payload.trace_id);
  return { accepted: traceOf('run_accepted'), completed: traceOf('completion') };
}

const named = (spans: CollectedSpan[], name: string) => spans.filter((span) => span.name === name);

function parentOf(spans: CollectedSpan[], span: CollectedSpan | undefined): CollectedSpan | undefined {
  return spans.find(({ spanId }) => spanId === span?.parentSpanId);
}

/** Spans that hang on nothing that was exported. */
function roots(spans: CollectedSpan[]): CollectedSpan[] {
  return spans.filter((span) => !parentOf(spans, span));
}

/** Names from a span up to its root. */
function pathOf(spans: CollectedSpan[], span: CollectedSpan | undefined): string[] {
  return span ? [span.name, ...pathOf(spans, parentOf(spans, span))] : [];
}

const AGENT_PATH = [
  'invoke_agent root',
  'margay.session.v1.Sessions/AcceptRun',
  'HTTP POST /api/sessions/{session_id}/query',
];

it('makes one tree of a run, from the request to the model, the tool and the stream', async () => {
  const command = `echo ${CANARIES.argument}; env; cat /proc/self/environ; cat note.txt`;
  margay.script(
    byConversation(({ results }) =>
      results.length === 0 ? callTools({ name: 'aider_shell_tool', arguments: { command } }) : answer(CANARIES.answer),
    ),
  );
  const session = await margay.sessionWith({ 'note.txt': CANARIES.file });
  const parent = { traceId: randomBytes(16).toString('hex'), spanId: randomBytes(8).toString('hex') };
  const watching = margay.frames(session.id, { query: '?ids=1', takes: ({ event }) => event.type !== 'completion' });
  const { status } = await margay.request(
    'POST',
    `/api/sessions/${session.id}/query`,
    { query: CANARIES.prompt },
    { traceparent: `00-${parent.traceId}-${parent.spanId}-01` },
  );
  expect(status).toBe(202);
  await watching.catch(() => undefined);
  for await (const event of session.stream()) if (event.type === 'completion') break;
  expect(await runOf(session.id)).toEqual({ accepted: parent.traceId, completed: parent.traceId });

  // Each process exports on its own: what is looked at is one moment at which all of it is there.
  let there: CollectedSpan[] = [];
  const spans = () => there;
  const isWhole = (): boolean => {
    there = collector.of(parent.traceId);
    const kinds = named(there, 'commit').map(({ attributes }) => attributes['margay.commit.kind']);
    return (
      named(there, 'invoke_agent root').length === 1 &&
      named(there, 'chat scripted').length === 2 &&
      named(there, 'sandbox.execute').length > 0 &&
      named(there, 'deliver').some((span) => parentOf(there, span)?.name === 'commit') &&
      ['accept', 'claim', 'step', 'finish'].every((kind) => kinds.includes(kind)) &&
      roots(there).length === 1
    );
  };
  await until(isWhole);
  const [root, ...loose] = roots(spans());
  expect(loose.map((span) => pathOf(spans(), span))).toEqual([]);
  expect(root).toMatchObject({
    name: 'HTTP POST /api/sessions/{session_id}/query',
    service: 'margay-gateway',
    parentSpanId: parent.spanId,
    attributes: { 'http.request.method': 'POST', 'http.response.status_code': 202 },
  });

  const [agent] = named(spans(), 'invoke_agent root');
  expect(pathOf(spans(), agent)).toEqual(AGENT_PATH);
  expect(agent).toMatchObject({
    service: 'margay-agent-runner',
    isFailed: false,
    attributes: { 'gen_ai.conversation.id': session.id, 'margay.run.id': `${session.id}:r1`, 'margay.run.epoch': 2 },
  });

  const chats = named(spans(), 'chat scripted');
  expect(chats).toHaveLength(2);
  for (const chat of chats) {
    expect(pathOf(spans(), chat)).toEqual(['chat scripted', ...AGENT_PATH]);
    expect(chat.attributes).toMatchObject({
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'openai',
      'gen_ai.request.model': 'scripted',
      'gen_ai.response.model': 'scripted',
      'gen_ai.usage.input_tokens': expect.any(Number),
      'gen_ai.usage.output_tokens': expect.any(Number),
    });
  }

  const toolPath = ['execute_tool aider_shell_tool', ...AGENT_PATH];
  const [tool] = named(spans(), 'execute_tool aider_shell_tool');
  expect(tool?.attributes).toMatchObject({
    'gen_ai.tool.name': 'aider_shell_tool',
    'gen_ai.tool.call.id': `${session.id}.2.1.0`,
    'margay.tool.effect': 'unkeyed',
  });
  for (const name of ['sandbox.claim', 'sandbox.execute'])
    expect(pathOf(spans(), named(spans(), name).at(-1))).toEqual([name, ...toolPath]);

  const commits = named(spans(), 'commit');
  const kinds = commits.map(({ attributes }) => attributes['margay.commit.kind']);
  expect(kinds).toEqual(expect.arrayContaining(['accept', 'claim', 'step', 'finish']));
  const steps = commits.filter(({ attributes }) => attributes['margay.commit.kind'] === 'step');
  for (const step of steps) expect(pathOf(spans(), step)).toEqual(['commit', ...AGENT_PATH]);

  const delivered = named(spans(), 'deliver').filter((span) => parentOf(spans(), span)?.name === 'commit');
  expect(delivered.length).toBeGreaterThan(0);
  expect(delivered.every(({ service }) => service === 'margay-gateway')).toBe(true);
});

it('adds a span with the next epoch to the same trace when the run is handed over', async () => {
  margay.script(
    byConversation(({ results }) =>
      results.length === 0
        ? callTools({ name: 'aider_shell_tool', arguments: { command: 'sleep 3; echo done' } })
        : answer('handed over'),
    ),
  );
  const session = await margay.sessionWith({});
  const run = await session.query('go');
  for await (const event of run.events()) if (event.type === 'tool_call') break;
  await Promise.all(['agent-runner', 'agent-runner-2'].map((name) => margay.platform.restart(name)));
  expect((await run.result()).text).toBe('handed over');
  const { accepted } = await runOf(session.id);
  let there: CollectedSpan[] = [];
  const agents = () => named(there, 'invoke_agent root');
  await until(() => {
    there = collector.of(accepted);
    return agents().length === 2 && roots(there).length === 1;
  });
  expect(roots(there).map(({ name }) => name)).toEqual([AGENT_PATH[2]]);
  const epochs = agents().map(({ attributes }) => Number(attributes['margay.run.epoch']));
  expect(new Set(epochs).size).toBe(2);
  expect(agents().map((agent) => pathOf(there, agent))).toEqual([AGENT_PATH, AGENT_PATH]);
  expect(agents().find(({ isFailed }) => isFailed)?.attributes['error.type']).toBe('drained');
}, 180_000);

it('says nothing of what was said, and no key, in spans, logs, events and sandboxes', async () => {
  const exported = collector.bodies.join('\n');
  const logFolder = dirname(margay.platform.get('gateway').logFile);
  const logs = await Promise.all((await readdir(logFolder)).map((name) => readFile(join(logFolder, name), 'utf8')));
  const secrets = { model: MODEL_KEY, api: margay.platform.apiKey };
  for (const canary of [...Object.values(CANARIES), ...Object.values(secrets)]) {
    expect(exported).not.toContain(canary);
    expect(logs.filter((log) => log.includes(canary))).toEqual([]);
  }
  expect(logs.join('').length).toBeGreaterThan(1_000);

  // The first session's shell has shown its environment in its result.
  const { body } = await margay.request('GET', '/api/sessions');
  const { sessions } = body as { sessions: { session_id: string }[] };
  const frames = (await Promise.all(sessions.map(({ session_id: id }) => margay.storedFrames(id)))).flat().join('\n');
  expect(frames).toContain(CANARIES.prompt);
  expect(frames).toContain('MARGAY_SESSION_ID');
  for (const secret of Object.values(secrets)) expect(frames).not.toContain(secret);

  // Foreign hosts learn nothing of our traces.
  expect(margay.model.requests.filter(({ headers }) => 'traceparent' in headers)).toEqual([]);
});

it('shows the figures of every service, and no id among their labels', async () => {
  const texts = await Promise.all(
    margay.platform.processes.map(async ({ name }) =>
      (await fetch(`${margay.platform.managementUrl(name)}/metrics`)).text(),
    ),
  );
  const all = texts.join('\n');
  const names = [
    ...[
      'dispatch_demand_runs',
      'dispatch_queued_runs',
      'dispatch_wait_seconds_count',
      'takeover_duration_seconds_count',
    ],
    ...['fenced_commands_total', 'commit_conflicts_total', 'commit_unknown_outcomes_total', 'effects_lag_seconds'],
    ...['commit_duration_seconds_count', 'runs_ended_total', 'sandboxes', 'sandbox_claim_duration_seconds_count'],
    ...['model_call_duration_seconds_count', 'model_first_token_seconds_count', 'tokens_total'],
    ...['tool_call_duration_seconds_count', 'step_overhead_seconds_count', 'http_request_duration_seconds_count'],
  ];
  expect(names.filter((name) => !new RegExp(`^margay_${name}[ {]`, 'm').test(all))).toEqual([]);
  const { body } = await margay.request('GET', '/api/sessions');
  const { sessions } = body as { sessions: { session_id: string }[] };
  expect(sessions.filter(({ session_id: id }) => all.includes(id))).toEqual([]);
  expect(all).not.toMatch(/[{,](session|run|call|user|key)\w*="/);
});
