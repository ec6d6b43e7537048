import { memoryPorts, type EngineOptions } from '@margay/engine';
import { RandomIds, SystemClock } from './system-ports';

export type NodePorts = Pick<EngineOptions, 'clock' | 'ids' | 'store' | 'blobs'>;

/** What an engine in a Node process needs besides a model: the system's clock, random ids, sessions in memory. */
export function nodePorts(): NodePorts {
  const { store, blobs } = memoryPorts();
  return { clock: new SystemClock(), ids: new RandomIds(), store, blobs };
}
