import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FakeGateway, QuickClock, type FakeSession } from '@margay/testing';
import { runCli } from './cli';
import { FakeTerminal } from './fake-terminal';
import { VERSION } from './version';

let gateway: FakeGateway;
let home: string;
let clock: QuickClock;

beforeEach(async () => {
  gateway = await FakeGateway.start();
  home = await mkdtemp(join(tmpdir(), 'margay-cli-'));
  clock = new QuickClock(1500);
});
afterEach(async () => {
  await gateway.close();
  await rm(home, { recursive: true });
});

interface Outcome {
  code: number;
  out: string;
  err: string;
}

const terminalWith = (variables: Record<string, string> = {}, isTerminal = false): FakeTerminal =>
  new FakeTerminal(
    clock,
    { MARGAY_URL: gateway.url, MARGAY_API_KEY: gateway.apiKey, MARGAY_HOME: home, ...variables },
    { isTerminal },
  );

async function margay(args: string[], terminal = terminalWith()): Promise<Outcome> {
  const code = await runCli(args, terminal);
  return { code, out: terminal.stdout.text, err: terminal.stderr.text };
}

const until = async (isSo: () => boolean): Promise<void> => {
  while (!isSo()) await new Promise((resolve) => setImmediate(resolve));
};

const profiles = async (content: object, mode = 0o600): Promise<void> => {
  const path = join(home, 'profiles.json');
  await writeFile(path, JSON.stringify(content));
  await chmod(path, mode);
};

describe('run', () => {
  it('streams the answer and exits with 0', async () => {
    gateway.onRun = async (session) => {
      await session.listened();
      session.delta('It ', 0).delta('works.', 3).finish('It works.');
    };
    const { code, out, err } = await margay(['run', 'does', 'it?'], terminalWith({ NO_COLOR: '1' }, true));
    expect([code, out]).toEqual([0, 'It works.\n']);
    expect(err).toMatch(/^session [0-9a-f]{32}\n$/);
    expect(gateway.requests.find(({ path }) => path.endsWith('/query'))?.body.query).toBe('does it?');
  });

  it('prints the text alone with --quiet and events with --json', async () => {
    gateway.onRun = (session) => session.finish('42');
    expect(await margay(['run', 'x', '--quiet'])).toEqual({ code: 0, out: '42\n', err: '' });
    const { out, err } = await margay(['--json', 'run', 'x']);
    const types = out
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { type: string }).type);
    expect([types, err]).toEqual([['run_accepted', 'user', 'assistant', 'completion'], '']);
  });

  it('prints no escape code without a terminal, with --plain or on a dumb one', async () => {
    gateway.onRun = (session) =>
      session.append('tool_call', { tool_id: 't', tool_input: {}, agent_id: 'root' }).finish('ok');
    const cases: [string[], FakeTerminal][] = [
      [['run', 'x'], terminalWith({ FORCE_COLOR: '1' })],
      [['run', 'x', '--plain'], terminalWith({}, true)],
      [['run', 'x'], terminalWith({ TERM: 'dumb' }, true)],
    ];
    for (const [args, terminal] of cases) {
      const { out, err } = await margay(args, terminal);
      expect(out + err).not.toContain('\x1b');
      expect(out).toMatch(/^\d\d:\d\d:\d\d run_accepted .*\n\d\d:\d\d:\d\d user x\n\d\d:\d\d:\d\d tool_call t\nok\n/);
    }
  });

  it.each([
    ['failed', { done_reason: 'error', error: 'model gone' }, 1],
    ['incomplete', { done: false, done_reason: 'max_steps_reached' }, 1],
    ['blocked', { blocked_code: 'auth' }, 1],
    ['unmet_goal', { done_reason: 'unmet_goal' }, 1],
    ['canceled', { done_reason: 'canceled' }, 130],
    ['awaiting_approval', { done_reason: 'awaiting_approval' }, 8],
  ])('exits by the run’s status: %s', async (status, completion, expected) => {
    gateway.onRun = (session) => session.finish('(closed)', completion, status);
    expect((await margay(['run', 'x'])).code).toBe(expected);
  });

  it('exits with 8 while the run waits for a person', async () => {
    gateway.onRun = (session) =>
      session.setState({ waiting: { kind: 'approval', id: 'a', since: '', expires_at: null } });
    const { code, err } = await margay(['run', 'x']);
    expect(code).toBe(8);
    expect(err).toContain('waits for a person');
  });

  it('reads standard input for -, and refuses an empty text', async () => {
    gateway.onRun = (session) => session.finish('ok');
    const terminal = terminalWith();
    terminal.input = 'from a pipe\n';
    expect((await margay(['run', '-'], terminal)).code).toBe(0);
    expect(gateway.requests.find(({ path }) => path.endsWith('/query'))?.body.query).toBe('from a pipe\n');
    expect(await margay(['run', ' '])).toMatchObject({
      code: 2,
      err: expect.stringContaining('error: the text is empty'),
    });
  });

  it('sends folder, model, mode and tag where they belong', async () => {
    const { code, out, err } = await margay([
      'run',
      'x',
      '--cwd',
      'sub',
      '--model',
      'm',
      '--mode',
      'plan',
      '--tag',
      't',
      '--detach',
    ]);
    expect([code, out]).toEqual([0, `${[...gateway.sessions.keys()][0]}\n`]);
    expect(err).toContain('margay tail');
    const [create, query] = gateway.requests;
    expect(create?.body).toEqual({ session_tag: 't', cwd: '/srv/shop/sub', mode: 'plan', context: { model: 'm' } });
    expect(query?.body).toEqual({ query: 'x', mode: 'plan', context: { model: 'm' } });
    expect(create?.headers['x-margay-surface']).toBe('cli');
    expect(create?.headers['x-margay-capabilities']).toBeUndefined();
  });

  it('cancels the run after --time-limit and exits with 124', async () => {
    const running = margay(['run', 'x', '--time-limit', '10m']);
    await until(() => [...gateway.sessions.values()][0]?.listeners === 1);
    clock.advance(600_000);
    expect((await running).code).toBe(124);
    expect([...gateway.sessions.values()][0]?.state.status).toBe('canceled');
    expect(clock.pending).toBe(0);
  });
});

describe('Ctrl-C', () => {
  const start = async (
    args: string[],
  ): Promise<{ terminal: FakeTerminal; outcome: Promise<Outcome>; session: FakeSession }> => {
    const terminal = terminalWith({ NO_COLOR: '1' }, true);
    const outcome = margay(args, terminal);
    await until(() => [...gateway.sessions.values()].at(-1)?.listeners === 1);
    return { terminal, outcome, session: [...gateway.sessions.values()].at(-1) as FakeSession };
  };

  it('once interrupts the run and exits with 130 when it ends', async () => {
    const { terminal, outcome, session } = await start(['run', 'x']);
    terminal.pressInterrupt();
    await until(() => session.frames.some((text) => text.includes('[Interrupted by user]')));
    session.finish('(stopped)');
    const { code, err } = await outcome;
    expect(code).toBe(130);
    expect(err).toContain('interrupted');
    expect(terminal.catchesInterrupts).toBe(false);
  });

  it('twice within 2 s leaves and lets the run go on', async () => {
    const { terminal, outcome, session } = await start(['run', 'x']);
    terminal.pressInterrupt();
    clock.advance(1900);
    terminal.pressInterrupt();
    const { code, err } = await outcome;
    expect(code).toBe(130);
    expect(err).toContain(`margay tail ${session.id} --follow`);
    expect(session.state.running).toBe(true);
  });

  it('twice with more between only interrupts twice', async () => {
    const { terminal, outcome, session } = await start(['run', 'x']);
    terminal.pressInterrupt();
    clock.advance(2100);
    terminal.pressInterrupt();
    const interrupts = () => session.frames.filter((text) => text.includes('[Interrupted by user]')).length;
    await until(() => interrupts() === 2);
    session.finish('(stopped)');
    expect((await outcome).code).toBe(130);
  });

  it('leaves a tail at once', async () => {
    const running = gateway.addSession();
    running.begin('x');
    const { terminal, outcome } = await start(['tail', running.id]);
    terminal.pressInterrupt();
    expect((await outcome).code).toBe(130);
    expect(running.state.running).toBe(true);
  });
});

describe('sessions', () => {
  let first: FakeSession;
  let second: FakeSession;
  beforeEach(() => {
    first = gateway.addSession(`abcd1${'0'.repeat(27)}`).append('user', { text: 'x' });
    second = gateway
      .addSession(`abcd2${'0'.repeat(27)}`)
      .append('user', { text: 'x' })
      .append('assistant', { text: 'y' });
    first.tags.push('nightly');
  });

  it('lists them for people, scripts and pipes', async () => {
    const { out } = await margay(['sessions']);
    expect(out.split('\n')[0]).toMatch(/^ID +STATUS +UPDATED +TITLE$/);
    expect(out).toContain('abcd10000000  idle');
    expect(JSON.parse((await margay(['sessions', 'list', '--json'])).out)).toMatchObject({
      sessions: [{ session_id: second.id }, {}],
    });
    expect((await margay(['sessions', '--quiet', '--limit', '1'])).out).toBe(`${second.id}\n`);
    expect((await margay(['sessions', '--status', 'failed'])).out).toBe('no sessions yet\n');
  });

  it.each([
    ['a full id', `abcd1${'0'.repeat(27)}`],
    ['a unique prefix', 'abcd1'],
    ['a tag', 'nightly'],
  ])('finds one by %s', async (_name, reference) => {
    const { out } = await margay(['sessions', 'show', reference, '--json']);
    expect(JSON.parse(out)).toMatchObject({ session_id: first.id });
  });

  it('finds the last one', async () => {
    expect((await margay(['sessions', 'show', '@last'])).out).toMatch(new RegExp(`session_id +${second.id}`));
  });

  it('names the candidates of an ambiguous prefix and the nearest of an unknown name', async () => {
    const ambiguous = await margay(['tail', 'abcd']);
    expect(ambiguous).toMatchObject({ code: 2, err: expect.stringContaining(first.id) });
    expect(ambiguous.err).toContain(second.id);
    expect(await margay(['tail', 'nigthly'])).toMatchObject({ code: 4, err: expect.stringContaining('try: nightly') });
  });
});

describe('tail, send and stop', () => {
  it('tails from a place on, raw with states', async () => {
    const session = gateway.addSession().append('user', { text: 'one' }).append('user', { text: 'two' });
    const { out } = await margay(['tail', session.id, '--after', '1', '--json']);
    expect(out).toBe(`${session.frames[1]}\n`);
    const raw = (await margay(['tail', session.id, '--raw'])).out.trim().split('\n');
    expect(raw).toHaveLength(3);
    expect(JSON.parse(raw[2] ?? '')).toMatchObject({ type: 'session_state' });
  });

  it('steers, follows from the steering on, and starts a run where none is active', async () => {
    const session = gateway.addSession();
    session.begin('x');
    session.append('agent_message', { text: 'long before', agent_id: 'root', depth: 0 });
    expect((await margay(['send', session.id, 'faster'])).out).toBe('sent: it is read at the next step\n');
    const following = margay(['send', session.id, 'even', 'faster', '--follow', '--json']);
    await until(() => session.listeners === 1);
    session.finish('done');
    const types = (await following).out
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { type: string }).type);
    expect(types).toEqual(['user_steer', 'assistant', 'completion']);
    const { out } = await margay(['send', session.id, 'again', '--json']);
    expect(JSON.parse(out)).toEqual({ session_id: session.id, steered: false, run_id: `${session.id}:r2` });
  });

  it('cancels or interrupts', async () => {
    const session = gateway.addSession();
    expect((await margay(['stop', session.id])).out).toBe(`session ${session.id} runs nothing\n`);
    session.begin('x');
    expect((await margay(['stop', session.id, '--interrupt'])).out).toContain('interrupted the run');
    expect(JSON.parse((await margay(['stop', session.id, '--json'])).out)).toEqual({
      session_id: session.id,
      canceled: true,
    });
  });
});

describe('what the server has', () => {
  it('lists tools, models and projects', async () => {
    const tool = {
      tool_id: 'read_file',
      name: 'r',
      kind: 'local',
      enabled: true,
      description: 'Reads.',
      scope: 'builtin',
    };
    gateway.pages['/api/tools'] = {
      tools: [tool, { ...tool, tool_id: 'off', enabled: false, disabled_reason: 'no key' }],
    };
    gateway.pages['/api/projects'] = {
      projects: [{ name: 'shop', path: '/w', description: 'Shop', available: false }],
    };
    expect((await margay(['tools'])).out).toMatch(/read_file +builtin +Reads\.\noff +builtin +off: no key/);
    expect((await margay(['models'])).out).toBe('demo/scripted  (default)\n');
    expect((await margay(['projects'])).out).toMatch(/shop +\/w \(missing\) +Shop/);
    expect(JSON.parse((await margay(['models', '--json'])).out)).toMatchObject({ default: 'demo/scripted' });
  });

  it('shows status and versions, also of a server without /api/system', async () => {
    expect((await margay(['status'])).out).toMatch(/server +http.*\nhealth\.status +ok\n/);
    gateway.pages['/api/system'] = { version: '9.9.9', features: { ide: true } };
    expect((await margay(['status'])).out).toMatch(/features\.ide +true/);
    expect((await margay(['version'])).out).toBe(`margay ${VERSION}\nserver 9.9.9\n`);
    expect(await margay(['version'], terminalWith({ MARGAY_URL: '' }))).toMatchObject({
      code: 0,
      out: `margay ${VERSION}\nserver not reached\n`,
    });
  });

  it('is of the package’s version', async () => {
    const manifest = JSON.parse(await readFile(join(__dirname, '../package.json'), 'utf8')) as { version: string };
    expect(VERSION).toBe(manifest.version);
  });
});

describe('settings', () => {
  const tenantSent = () => gateway.requests.at(-1)?.headers['x-margay-tenant'];

  it('come from flag, then environment, then profile', async () => {
    await writeFile(join(home, 'key'), `${gateway.apiKey}\n`);
    await profiles({
      current: 'local',
      profiles: { local: { url: gateway.url, key_file: 'key', tenant: 'of-profile', model: 'pm' } },
    });
    const bare = { MARGAY_URL: '', MARGAY_API_KEY: '' };
    expect((await margay(['models'], terminalWith(bare))).code).toBe(0);
    expect(tenantSent()).toBe('of-profile');
    await margay(['models'], terminalWith({ ...bare, MARGAY_TENANT: 'of-environment' }));
    expect(tenantSent()).toBe('of-environment');
    await margay(['models', '--tenant', 'of-flag'], terminalWith({ ...bare, MARGAY_TENANT: 'of-environment' }));
    expect(tenantSent()).toBe('of-flag');
    expect(
      (await margay(['models', '--url', gateway.url], terminalWith({ ...bare, MARGAY_URL: 'http://127.0.0.1:1' })))
        .code,
    ).toBe(0);
    expect((await margay(['models'], terminalWith({ ...bare, MARGAY_API_KEY_FILE: join(home, 'key') }))).code).toBe(0);
    await margay(['run', 'x', '--detach'], terminalWith(bare));
    expect(gateway.requests.at(-1)?.body.context).toEqual({ model: 'pm' });
  });

  it('choose the profile by flag or environment, naming the nearest of an unknown one', async () => {
    const other = { url: gateway.url, key: gateway.apiKey, tenant: 'other' };
    await profiles({ current: 'local', profiles: { local: { url: 'http://127.0.0.1:1', key: 'k' }, other } });
    const bare = { MARGAY_URL: '', MARGAY_API_KEY: '' };
    expect((await margay(['models', '--profile', 'other'], terminalWith(bare))).code).toBe(0);
    expect((await margay(['models'], terminalWith({ ...bare, MARGAY_PROFILE: 'other' }))).code).toBe(0);
    expect(await margay(['models', '--profile', 'othr'])).toMatchObject({
      code: 2,
      err: expect.stringContaining('nearest is "other"'),
    });
  });

  it('refuse a profile file that others may read, or that is malformed', async () => {
    await profiles({ profiles: {} }, 0o640);
    expect(await margay(['models'])).toMatchObject({ code: 2, err: expect.stringContaining('try: chmod 600') });
    await profiles({ profiles: { a: { url: 7 } } });
    expect(await margay(['models'])).toMatchObject({ code: 2, err: expect.stringContaining('profiles.a.url') });
  });

  it('say what is missing', async () => {
    expect(await margay(['models'], terminalWith({ MARGAY_URL: '' }))).toMatchObject({
      code: 2,
      err: expect.stringContaining('try: npm start'),
    });
    expect(await margay(['models'], terminalWith({ MARGAY_API_KEY: '' }))).toMatchObject({
      code: 3,
      err: expect.stringContaining('has no key'),
    });
  });
});

describe('failures', () => {
  it.each([
    [401, {}, 3],
    [403, {}, 3],
    [404, {}, 4],
    [409, {}, 5],
    [429, {}, 7],
    [402, { 'X-Margay-Reason': 'budget_exhausted' }, 7],
    [500, {}, 1],
    [503, {}, 6],
  ])('exit by what the server answered: %i', async (status, headers, expected) => {
    gateway.interceptors.push((_request, response) => {
      response.writeHead(status, { 'X-Request-Id': 'req-9', ...headers }).end('{"message":"because"}');
      return true;
    });
    const { code, err } = await margay(['models']);
    expect(code).toBe(expected);
    expect(err).toMatch(/^error: .+\ntry: .+\n[a-z_]+ · req-9\n$/);
  });

  it('name the address when nobody listens', async () => {
    const { code, err } = await margay(['models', '--url', 'http://127.0.0.1:2']);
    expect([code, err]).toEqual([
      6,
      'error: cannot reach http://127.0.0.1:2: connection refused\ntry: npm start, or give another address with --url\nnetwork\n',
    ]);
  });

  it('tell what to do with a session that is running or terminated', async () => {
    const session = gateway.addSession();
    session.begin('x');
    const running = await margay(['run', 'y', '-s', session.id]);
    expect(running.code).toBe(5);
    expect(running.err).toContain(`try: margay send ${session.id} TEXT`);
    session.state.terminated = true;
    expect(await margay(['send', session.id, 'y'])).toMatchObject({
      code: 5,
      err: expect.stringContaining('is terminated'),
    });
  });

  it('are a document with --json and carry a stack with --verbose only', async () => {
    const id = 'f'.repeat(32);
    const { code, err } = await margay(['tail', id, '--json']);
    expect(code).toBe(4);
    expect(JSON.parse(err)).toEqual({
      error: {
        code: 'NOT_FOUND',
        reason: 'session_not_found',
        message: `session ${id} not found`,
        request_id: 'req-1',
      },
    });
    expect((await margay(['tail', id])).err).not.toContain('    at ');
    expect((await margay(['tail', id, '--verbose'])).err).toContain('    at ');
  });

  it('suggest the command that was meant', async () => {
    expect(await margay(['sesions'])).toMatchObject({
      code: 2,
      err: expect.stringContaining('did you mean margay sessions?'),
    });
    expect(await margay(['xyzzyplugh'])).toMatchObject({ code: 2, err: expect.stringContaining('try: margay help\n') });
  });

  it.each([
    [['run']],
    [['run', 'x', '--mode', 'fly']],
    [['run', 'x', '--time-limit', 'soon']],
    [['sessions', '--limit', '0']],
    [['models', '--what']],
    [['models', 'extra']],
  ])('of usage exit with 2: %j', async (args) => {
    const { code, err, out } = await margay(args);
    expect([code, out]).toEqual([2, '']);
    expect(err).toMatch(/^error: .+\ntry: margay help( \w+)?\nusage\n$/);
  });
});

it('shows help without a command and on request', async () => {
  expect((await margay([])).out).toContain('Usage: margay');
  expect(await margay(['run', '--help'])).toMatchObject({
    code: 0,
    err: '',
    out: expect.stringContaining('--time-limit'),
  });
});
