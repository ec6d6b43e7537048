import { MemoryBlobStore, MemoryCommitStore, type BlobStore, type CommitStore } from '@margay/log';
import { Ids } from '../ports';
import { ManualClock } from './manual-clock';

/** Ids that are the same in every test: counted, with a fixed sequence for chance. */
export class SequenceIds extends Ids {
  private count = 0;
  private state = 1;

  hex(characters: number): string {
    this.count += 1;
    return this.count.toString(16).padStart(characters, '0').slice(-characters);
  }

  random(): number {
    this.state = (this.state * 48_271) % 2_147_483_647;
    return this.state / 2_147_483_647;
  }
}

export interface MemoryPorts {
  clock: ManualClock;
  ids: Ids;
  store: CommitStore;
  blobs: BlobStore;
}

/** Everything an engine needs besides a model, in memory; time stands still until it is moved. */
export function memoryPorts(): MemoryPorts {
  return {
    clock: new ManualClock(),
    ids: new SequenceIds(),
    store: new MemoryCommitStore(),
    blobs: new MemoryBlobStore(),
  };
}
