import { classOf } from '../driver/sandbox-driver';
import type { ProcessDriverOptions } from './driver-options';
import type { SandboxRecord } from './sandbox-records';

/** Little of everything, and no way out: for experiments. */
export const STRICT_CLASS = 'strict';
const STRICT_MEMORY_BYTES = 512 * 1024 ** 2;
const STRICT_PROCESSES = 18;

export const isStrict = (record: SandboxRecord): boolean => classOf(record) === STRICT_CLASS;

/** Those of the class `strict` are as small as on a cluster; 16 processes of a call, beside the daemon and the first one. */
export function limitsOf(
  { memoryBytes, processes }: ProcessDriverOptions,
  record: SandboxRecord,
): Pick<ProcessDriverOptions, 'memoryBytes' | 'processes'> {
  if (!isStrict(record)) return { memoryBytes, processes };
  return { memoryBytes: Math.min(memoryBytes, STRICT_MEMORY_BYTES), processes: Math.min(processes, STRICT_PROCESSES) };
}
