import { FakeGateway, QuickClock } from '@margay/testing';
import { runCli } from '../cli';
import { FakeTerminal } from '../fake-terminal';

let gateway: FakeGateway;
let answer: object;

beforeEach(async () => {
  gateway = await FakeGateway.start();
  gateway.interceptors.push(({ path }, response) => {
    if (!path.endsWith('/verify')) return false;
    response.setHeader('content-type', 'application/json').end(JSON.stringify(answer));
    return true;
  });
});
afterEach(() => gateway.close());

async function margay(...args: string[]): Promise<{ code: number; out: string }> {
  const environment = { MARGAY_URL: gateway.url, MARGAY_API_KEY: gateway.apiKey, MARGAY_HOME: '/nowhere' };
  const terminal = new FakeTerminal(new QuickClock(1_500), environment);
  return { code: await runCli(args, terminal), out: terminal.stdout.text };
}

describe('verify', () => {
  it('says that a log is in order', async () => {
    answer = { ok: true, commits: 12, head_hash: 'abc' };
    const { id } = gateway.addSession();
    expect(await margay('verify', id)).toEqual({ code: 0, out: `session ${id}: 12 commits in order, hash abc\n` });
    expect(await margay('verify', id, '--quiet')).toEqual({ code: 0, out: 'abc\n' });
  });

  it('fails with the first bad commit, of the last session where none is named', async () => {
    answer = { ok: false, commits: 3, head_hash: 'abc', first_bad: 4, problem: 'commit 4 is missing' };
    const { id } = gateway.addSession();
    const { code, out } = await margay('verify');
    expect([code, out]).toEqual([1, `session ${id}: commit 4 is bad: commit 4 is missing\n`]);
    expect(JSON.parse((await margay('verify', '--json')).out)).toEqual({ session_id: id, ...answer });
  });
});
