import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { createLogger } from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import { answer, byConversation, callTools } from '@margay/testing';
import { PlatformHarness } from './harness';
import { documentedMetrics, registeredIn } from './operating/metrics';

jest.setTimeout(180_000);

/** The database's name says its generation, as a real one's does. */
class Installation extends PlatformHarness {
  override database = `e2e_${randomBytes(6).toString('hex')}_g0`;
}

const margay = new Installation({ mode: 'combined' });
/** By then a session replica has looked at the beats of the others, and its clients have asked it. */
const WATCH_MS = 11_000;
const logger = createLogger({ service: 'e2e', level: 'off' });
const first = margay.database;
let scratch: string;
let mongo: MongoConnection;

beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'margay-operating-'));
  await margay.start();
  mongo = new MongoConnection({ url: margay.storeUrl, database: first, logger, name: 'e2e' });
  await mongo.ready(60_000);
}, 600_000);
afterAll(async () => {
  if (margay.database !== first) await mongo.connection.dropDatabase();
  await mongo?.close();
  await margay.stop();
  await rm(scratch, { recursive: true, force: true });
});

/** A command of the bundle, with the environment of the installation. */
function operate(...args: string[]): Promise<{ code: number; out: string }> {
  const env = {
    PATH: process.env['PATH'],
    MARGAY_MONGODB_URL: margay.storeUrl,
    MARGAY_MONGODB_DATABASE: margay.database,
    MARGAY_NATS_URL: margay.natsUrl,
    MARGAY_KEYS_DIR: join(margay.home, 'keys'),
    MARGAY_HOME: margay.home,
  };
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [join(__dirname, '../../dist/margay.cjs'), ...args], { env }, (_, out) =>
      resolve({ code: child.exitCode ?? -1, out }),
    );
  });
}

/** What a process says of its readiness. */
async function readiness(name: string): Promise<{ status: number; failed: string[] }> {
  const response = await fetch(`${margay.platform.managementUrl(name)}/readyz`);
  return { status: response.status, failed: ((await response.json()) as { failed?: string[] }).failed ?? [] };
}

async function until(isSo: () => Promise<boolean>): Promise<void> {
  while (!(await isSo())) await pause(200);
}

function readsFile(): void {
  margay.script(
    byConversation(({ results }) =>
      results.length === 0
        ? callTools({ name: 'read_file', arguments: { path: 'a.txt' } })
        : answer(`the file says: ${results[0]?.content}`),
    ),
  );
}

const typesOf = async (id: string) =>
  (await margay.storedFrames(id)).map((text) => (JSON.parse(text) as { type: string }).type);

describe('metrics', () => {
  it('that are documented appear once the main job was done, and no others', async () => {
    readsFile();
    const session = await margay.sessionWith({ 'a.txt': 'forty-two' });
    await (await session.query('what does the file say?')).result();
    const texts = await Promise.all(
      ['control', 'agent-runner'].map(async (name) =>
        (await fetch(`${margay.platform.managementUrl(name)}/metrics`)).text(),
      ),
    );
    const documented = await documentedMetrics();
    const registered = registeredIn(texts.join('\n'));
    expect(registered.filter((name) => !documented.some((metric) => metric.name === name))).toEqual([]);
    const expected = documented.filter(({ isAlways }) => isAlways).map(({ name }) => name);
    expect(expected.filter((name) => !registered.includes(name))).toEqual([]);
    expect(texts.join('\n')).toMatch(/^margay_clock_skew_seconds \d/m);
    // There was no backup yet: no number is better than a wrong one.
    expect(texts.join('\n')).not.toMatch(/^margay_backup_age_seconds \d/m);
  });
});

describe('the order of versions', () => {
  const instances = () => mongo.connection.collection<{ _id: string; beat: number }>('instances');

  /** As if a process of another version lived, until it is told to end. */
  function beating(service: string, version: string): { end: () => Promise<void> } {
    const _id = randomBytes(8).toString('hex');
    const raise = () => instances().updateOne({ _id }, { $inc: { beat: 1 }, $set: { service, version, tenantId: '_platform' } as object }, { upsert: true }); // prettier-ignore
    let beat = raise();
    const timer = setInterval(() => (beat = raise()), 500);
    return {
      async end() {
        clearInterval(timer);
        await beat;
        await instances().deleteOne({ _id });
      },
    };
  }

  it('keeps a client that starts out of service while an older session replica lives, and none that serves', async () => {
    const old = beating('session', '0.0.9');
    await pause(WATCH_MS);
    expect((await readiness('agent-runner')).status).toBe(200);
    // On a busy machine the session replica may have seen less beats by now than it needs: then it starts once more.
    await until(async () => {
      await margay.platform.restart('agent-runner', { until: 'started' });
      return (await readiness('agent-runner')).failed.includes('process.version');
    });
    expect((await readiness('control')).status).toBe(200);
    await old.end();
    await until(async () => (await readiness('agent-runner')).status === 200);
  });

  it('keeps a session replica that starts out of service while newer clients live', async () => {
    const newer = beating('gateway', '99.0.0');
    await pause(WATCH_MS);
    expect((await readiness('control')).status).toBe(200);
    await margay.platform.restart('control', { until: 'started' });
    expect((await readiness('control')).failed).toContain('session.version');
    expect(await (await fetch(`${margay.platform.managementUrl('control')}/metrics`)).text()).toMatch(/^margay_version_gate_closed 1$/m); // prettier-ignore
    await newer.end();
    await until(async () => (await readiness('control')).status === 200);
  });
});

describe('the doctor', () => {
  it('finds the installation in order', async () => {
    const { out } = await operate('doctor', '--quick', '--json');
    const findings = out.trim().split('\n').map((line) => JSON.parse(line) as { check: string; status: string }); // prettier-ignore
    expect(findings.filter(({ check, status }) => status !== 'ok' && check !== 'machine.disk')).toEqual([]);
  });

  it('ends with 2 and a fix where the store is away', async () => {
    const env = { PATH: process.env['PATH'], MARGAY_MONGODB_URL: 'mongodb://127.0.0.1:1' };
    const args = [join(__dirname, '../../dist/margay.cjs'), 'doctor', '--quick'];
    const ended = new Promise<{ code: number | null; out: string }>((resolve) => {
      const child = execFile(process.execPath, args, { env }, (_, out) => resolve({ code: child.exitCode, out }));
    });
    const { code, out } = await ended;
    expect(code).toBe(2);
    expect(out).toContain('FAULT   store.reached');
    expect(out).toContain('fix: ');
  });
});

describe('a support bundle', () => {
  it('holds what the processes say of themselves, and no key', async () => {
    const to = join(scratch, 'bundle');
    const { logFile } = margay.platform.get('control');
    const urls = ['control', 'agent-runner'].flatMap((name) => ['--metrics', margay.platform.managementUrl(name)]);
    expect(await operate('support-bundle', '--to', to, ...urls, '--log', logFile)).toMatchObject({ code: 0 });
    const names = (await readdir(to)).sort();
    expect(names).toEqual(['about.json', 'doctor.json', expect.stringMatching(/^log-1-/), 'metrics-1.txt', 'metrics-2.txt', 'store.json']); // prettier-ignore
    const texts = await Promise.all(names.map((name) => readFile(join(to, name), 'utf8')));
    expect(texts.join('\n')).not.toContain(margay.platform.apiKey);
    expect(texts.filter((text) => text.startsWith('could not be had'))).toEqual([]);
    expect(JSON.parse(texts.at(-1) ?? '')).toMatchObject({ database: first, instances: expect.arrayContaining([expect.objectContaining({ service: 'session' })]) }); // prettier-ignore
  });
});

describe('a backup', () => {
  it('of a living platform is restored as the next generation, with unfinished runs for review', async () => {
    readsFile();
    const finished = await margay.sessionWith({ 'a.txt': 'forty-two' });
    await (await finished.query('what does the file say?')).result();
    const before = await margay.storedFrames(finished.id);
    margay.script(() => ({ ...answer('never'), hang: true }));
    const unfinished = await margay.sessionWith({ 'a.txt': 'forty-two' });
    await unfinished.query('this will not come to an end');
    await until(async () => (await typesOf(unfinished.id)).includes('llm_call_start'));

    const backups = join(scratch, 'backups');
    expect(await operate('backup', '--to', backups)).toMatchObject({ code: 0, out: expect.stringContaining('all in order') }); // prettier-ignore
    const [name = ''] = await readdir(backups);
    expect(await readFile(join(backups, name, 'backup.json'), 'utf8')).toContain('"finishedAt"');
    expect((await operate('backup', '--check', backups)).code).toBe(0);

    const refused = await operate('restore', '--from', backups);
    expect(refused).toMatchObject({ code: 1, out: expect.stringContaining('instances_alive') });

    await margay.platform.stop();
    const restored = await operate('restore', '--from', backups, '--quiet-seconds', '20');
    const next = first.replace(/_g0$/, '_g1');
    expect(restored).toMatchObject({ code: 0, out: expect.stringContaining(`set MARGAY_MONGODB_DATABASE=${next}`) });
    expect(restored.out).toContain('1 runs wait for review');

    margay.database = next;
    await margay.startPlatform();
    expect(await margay.storedFrames(finished.id)).toEqual(before);
    const last = JSON.parse((await margay.storedFrames(unfinished.id)).at(-1) ?? '{}') as object;
    expect(last).toMatchObject({
      type: 'completion',
      payload: { done_reason: 'error', failure_reason: 'needs_review' },
    });
    expect(await operate('verify', '--all')).toMatchObject({ code: 0 });
    expect((await operate('doctor', '--quick')).out).toContain('generation 1');

    // Who has looked at it lets it go on.
    readsFile();
    expect((await margay.request('POST', `/api/sessions/${unfinished.id}/recover`, { action: 'retry' })).status).toBe(
      202,
    );
    await until(
      async () => (await margay.storedFrames(unfinished.id)).at(-1)?.includes('"done_reason":"completed"') ?? false,
    );

    const numbered = async (lastEventId?: string): Promise<string> => {
      const headers = { 'x-api-key': margay.platform.apiKey, ...(lastEventId !== undefined && { 'last-event-id': lastEventId }) }; // prettier-ignore
      const url = `${margay.platform.gatewayUrl}/api/sessions/${finished.id}/stream?ids=1`;
      return (await (await fetch(url, { headers })).text()).split('\n').find((line) => line.startsWith('id: ')) ?? '';
    };
    expect([await numbered(), await numbered('1.3'), await numbered('3'), await numbered('0.3')]).toEqual(['id: 1.1', 'id: 1.4', 'id: 1.1', 'id: 1.1']); // prettier-ignore
  });
});
