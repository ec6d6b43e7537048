import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { answer, byConversation, callTools } from '@margay/testing';
import { PlatformHarness } from './harness';

jest.setTimeout(240_000);

const run = promisify(execFile);
const bundle = join(__dirname, '../../dist/margay.cjs');
/** Of every process that reads the files, at least one look comes to pass between two steps. */
const STEP_SECONDS = 3;
const CLIENTS = 2;

describe('the keys of services', () => {
  const margay = new PlatformHarness({ mode: 'split' });

  beforeAll(() => margay.start(), 600_000);
  afterAll(() => margay.stop(), 60_000);

  const keyOf = async (service: string) => readFile(join(margay.home, `keys/${service}.key.pem`), 'utf8');

  /** @returns whether the rotation is finished */
  async function rotate(): Promise<boolean> {
    const args = ['keys', 'rotate', '--out', margay.home, '--keys', 'keys'];
    const options = ['--step-seconds', String(STEP_SECONDS), '--sandboxes-checked'];
    const env = { ...process.env, MARGAY_MONGODB_URL: '' };
    const ended = await run(process.execPath, [bundle, ...args, ...options], { env }).then(
      ({ stdout }) => ({ code: 0, said: stdout }),
      ({ code, stdout, stderr }: { code: number; stdout: string; stderr: string }) => ({ code, said: stdout + stderr }),
    );
    if (ended.said.includes('rotation_early')) return delay(200).then(rotate);
    expect(ended.said).toMatch(/run this again in 3 s|the rotation is finished/);
    return ended.code === 0;
  }

  it('are replaced while runs go on, and nothing fails', async () => {
    margay.script(
      byConversation(({ step }) =>
        step < 2 ? callTools({ name: 'aider_shell_tool', arguments: { command: 'echo fine' } }) : answer('done'),
      ),
    );
    const before = await Promise.all(['gateway', 'session', 'tool-executor'].map(keyOf));
    let isOver = false;
    let life = 1;
    const answers: number[] = Array.from({ length: CLIENTS }, () => 0);
    const lives: number[] = Array.from({ length: CLIENTS }, () => 0);
    // A sandbox lives through several steps; none that was there before the first lives on when the old key goes.
    const client = async (n: number): Promise<void> => {
      while (!isOver) {
        const own = life;
        const session = await margay.sessionWith({});
        while (!isOver && own === life) {
          const { text } = await (await session.query('go')).result();
          expect(text).toBe('done');
          answers[n] = (answers[n] ?? 0) + 1;
          lives[n] = own;
        }
        await session.terminate();
      }
    };
    const clients = Promise.all(answers.map((_, n) => client(n)));
    const until = async (isReached: () => boolean) => {
      while (!isReached()) await Promise.race([delay(50), clients]);
    };
    const answered = () => {
      const before = [...answers];
      return until(() => answers.every((count, n) => count > (before[n] ?? 0)));
    };
    await answered();
    const finished: boolean[] = [];
    for (const nextLife of [1, 2, 2, 2]) {
      finished.push(await rotate());
      life = nextLife;
      await until(() => lives.every((own) => own === nextLife));
      await answered();
    }
    expect(finished).toEqual([false, false, false, true]);
    isOver = true;
    await clients;
    const after = await Promise.all(['gateway', 'session', 'tool-executor'].map(keyOf));
    after.forEach((key, n) => expect(key).not.toBe(before[n]));
    const logs = ['gateway', 'session', 'agent-runner', 'tool-executor'];
    for (const log of logs)
      expect(await readFile(join(margay.home, `logs/${log}.log`), 'utf8')).not.toMatch(/(grant|principal)_invalid/);
  });
});
