import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { FailedPreconditionError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import type { Isolation } from '../driver/sandbox-driver';
import { fileStamp } from './file-stamp';
import { obstacleOf, reachableFile } from './reachable';

export interface ProcessDriverOptions {
  /** `$MARGAY_HOME`. */
  home: string;
  /** The bundled daemon. */
  entry: string;
  wanted: Isolation | 'auto';
  /** Public keys of whoever signs sandbox grants. */
  trust: string;
  memoryBytes: number;
  processes: number;
  /** A sandbox ends by itself after this long without a call, should this process be gone. */
  idleExitMs: number;
  /** The private socket of the egress proxy on this machine; without it sandboxes reach nothing outside. */
  egressSocket?: string | undefined;
  /** Certificate of the proxy's authority; read when a sandbox starts, since the proxy makes it at its first start. */
  egressCaFile?: string | undefined;
  /** For tests only: the first daemon of each sandbox fails on purpose; those that replace it do not. */
  faultPoints?: string | undefined;
  logger: Logger;
}

/** Compiled code of the daemon, written once for all sandboxes. */
export function cacheFolderOf({ home, entry }: ProcessDriverOptions): string {
  return path.join(home, 'cache', `sandboxd-${fileStamp(entry)}`);
}

/** Everything a running sandbox was started from; one of another kind is not adopted. */
export function fingerprintOf(options: ProcessDriverOptions, isolation: Isolation): string {
  const { entry, trust, memoryBytes, processes, egressSocket } = options;
  const authority = authorityOf(options);
  const hasEgress = egressSocket !== undefined;
  const facts = [fileStamp(entry), trust, isolation, memoryBytes, processes, hasEgress, authority, process.version];
  return createHash('sha256').update(JSON.stringify(facts)).digest('hex').slice(0, 16);
}

/** What the proxy's authority is now; undefined without one. */
export function authorityOf({ egressSocket, egressCaFile }: ProcessDriverOptions): string | undefined {
  if (egressSocket === undefined || egressCaFile === undefined || !existsSync(egressCaFile)) return undefined;
  return readFileSync(egressCaFile, 'utf8');
}

/** Node and the daemon as a sandbox's user can read them; without bubblewrap it reads everything where it lies. */
export function programOf({ home, entry }: ProcessDriverOptions): { node: string; entry: string } {
  const obstacle = obstacleOf(home);
  if (obstacle !== undefined) {
    throw new FailedPreconditionError(
      'sandbox_home_closed',
      `The users of sandboxes cannot enter ${obstacle}. Set MARGAY_HOME to a folder that others may enter (e.g. /var/lib/margay, mode 0711), or make bubblewrap work.`,
    );
  }
  const folder = path.join(home, 'cache', 'program');
  return { node: reachableFile(process.execPath, folder), entry: reachableFile(entry, folder) };
}
