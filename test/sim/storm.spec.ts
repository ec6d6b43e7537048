import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** In processes of its own: as fast as `npm run test:sim`, and in no way like jest. */
const SIMULATOR = join(__dirname, '../../tools/sim.mjs');
const PATIENCE_MS = 600_000;

async function play(...options: string[]): Promise<string> {
  const run = promisify(execFile);
  const { stdout } = await run(process.execPath, [SIMULATOR, ...options]).catch((error: { stdout: string }) => error);
  return stdout.trim().split('\n').at(-1) ?? '';
}

describe('the protocol under seeded faults', () => {
  it(
    'keeps every promise',
    async () => {
      expect(await play('--seeds', '1-500')).toMatch(/^500 seeds, 0 failed/);
    },
    PATIENCE_MS,
  );

  it(
    'keeps every promise under stress',
    async () => {
      expect(await play('--seeds', '501-900', '--stress')).toMatch(/^400 seeds, 0 failed/);
    },
    PATIENCE_MS,
  );
});
