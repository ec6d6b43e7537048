import { execFile } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import type { SandboxdConfig } from './config';

const run = promisify(execFile);
const SHELL = '/bin/sh';
const LIMIT_MS = 10_000;

/** What every call needs: a shell that starts, and places that take files. Throws what does not work. */
export async function selfTest(config: SandboxdConfig): Promise<void> {
  await run(SHELL, ['-c', 'exit 0'], { cwd: config.MARGAY_SANDBOX_ROOT, timeout: LIMIT_MS });
  for (const folder of [config.MARGAY_SANDBOX_ROOT, config.MARGAY_SANDBOX_STATE_DIR]) {
    const file = path.join(folder, '.margay-self-test');
    await writeFile(file, '');
    await rm(file);
  }
}
