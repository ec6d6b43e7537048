import { NotFoundError } from '@margay/errors';
import { createLogger } from '@margay/platform';
import type { Rebuilt, Verification } from '@margay/session';
import { isOperatorCommand, parseOperatorCommand, runOperatorCommand, type OperatorContext } from './operator';

const GOOD: Verification = { sessionId: 'good', commits: 3, headHash: 'abc' };
const BAD: Verification = {
  sessionId: 'bad',
  commits: 1,
  headHash: 'def',
  fault: { c: 2, problem: 'commit 2 is missing' },
};

let lines: string[];
let closed: number;
let unreadable: Rebuilt['unreadable'];

const store: Awaited<ReturnType<OperatorContext['open']>> = {
  async verify(sessionId) {
    if (sessionId === 'none') throw new NotFoundError('session_not_found', 'session none not found');
    return sessionId === 'bad' ? BAD : GOOD;
  },
  async *verifyAll(tenantId) {
    yield GOOD;
    if (tenantId === undefined) yield BAD;
  },
  rebuild: async () => ({ sessions: 1, rows: 2, unreadable: [] }),
  rebuildAll: async () => ({ sessions: 7, rows: 3, unreadable }),
  close: async () => void (closed += 1),
};

const run = (...argv: string[]) =>
  runOperatorCommand(parseOperatorCommand(argv), {
    open: async () => store,
    write: (line) => lines.push(line),
    logger: createLogger({ service: 'spec', level: 'off' }),
  });

beforeEach(() => {
  lines = [];
  closed = 0;
  unreadable = [];
});

describe('commands of an operator', () => {
  it('are told from the start of services', () => {
    expect(isOperatorCommand(['verify', '--all'])).toBe(true);
    expect(isOperatorCommand(['rebuild'])).toBe(true);
    expect(isOperatorCommand(['--services', 'session'])).toBe(false);
    expect(isOperatorCommand([])).toBe(false);
  });

  it('verify all sessions: exit code 1 and the first bad commit where one is not in order', async () => {
    expect(await run('verify', '--all')).toBe(1);
    expect(lines).toEqual(['session bad: commit 2 is bad: commit 2 is missing', '2 sessions checked, 1 of them not in order']); // prettier-ignore
    expect(closed).toBe(1);
  });

  it('verify one tenant, or one session', async () => {
    expect(await run('verify', '--tenant', 't')).toBe(0);
    expect(await run('verify', '--session', 'good')).toBe(0);
    expect(await run('verify', '--session', 'bad')).toBe(1);
    expect(lines).toEqual([
      '1 sessions checked, 0 of them not in order',
      'session good: 3 commits in order, hash abc',
      'session bad: commit 2 is bad: commit 2 is missing',
    ]);
  });

  it('answer in JSON lines for machines', async () => {
    await run('verify', '--json');
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
      { session_id: 'good', ok: true, commits: 3, head_hash: 'abc' },
      { session_id: 'bad', ok: false, commits: 1, head_hash: 'def', first_bad: 2, problem: 'commit 2 is missing' },
    ]);
  });

  it('rebuild everything, or one session', async () => {
    expect(await run('rebuild')).toBe(0);
    expect(await run('rebuild', '--session', 'x', '--json')).toBe(0);
    expect(lines).toEqual(['7 sessions compared with their logs, 3 rows put right', '{"sessions":1,"rows":2,"unreadable":[]}']); // prettier-ignore
  });

  it('rebuild the others where a log can’t be read, name it, and end with exit code 1', async () => {
    unreadable = [{ sessionId: 'bad', problem: 'commit 2 has version 9' }];
    expect(await run('rebuild')).toBe(1);
    expect(await run('rebuild', '--json')).toBe(1);
    expect(lines).toEqual([
      "session bad can't be read: commit 2 has version 9",
      '7 sessions compared with their logs, 3 rows put right',
      '{"sessions":7,"rows":3,"unreadable":[{"session_id":"bad","problem":"commit 2 has version 9"}]}',
    ]);
  });

  it('close the store also when they fail', async () => {
    await expect(run('verify', '--session', 'none')).rejects.toMatchObject({ reason: 'session_not_found' });
    expect(closed).toBe(1);
  });

  it.each([
    [['verify', '--session']],
    [['verify', '--session', '--all']],
    [['verify', '--all', '--session', 'x']],
    [['rebuild', '--tenant', 'x']],
    [['verify', 'x']],
  ])('show their usage for %j', (argv) => {
    expect(() => parseOperatorCommand(argv)).toThrow('Usage: margay.cjs verify');
  });
});
