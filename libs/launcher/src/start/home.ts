import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { FailedPreconditionError } from '@margay/errors';
import { tryLock } from '../lock';
import { PidLedger } from '../processes/pid-ledger';
import type { Progress } from '../progress';

export interface Home {
  directory: string;
  ledger: PidLedger;
  release(): Promise<void>;
}

/** Takes a home for this process. Refuses one in use; ends by process id what a killed launcher left running in it. */
export async function openHome(directory: string, progress: Progress): Promise<Home> {
  await mkdir(directory, { recursive: true, mode: 0o711 });
  const lock = await tryLock(join(directory, 'run', 'start.lock'));
  if ('holder' in lock) {
    const message = `Margay already runs in ${directory} (process ${lock.holder.pid}). Use it, end it with Ctrl-C there, or name another folder by --home.`;
    throw new FailedPreconditionError('home_in_use', message);
  }
  const ledger = new PidLedger(join(directory, 'run', 'processes.json'));
  const ended = await ledger.endLeftovers();
  if (ended.length > 0) progress(`ended what an earlier start had left running: ${ended.join(', ')}`);
  return { directory, ledger, release: () => lock.release() };
}
