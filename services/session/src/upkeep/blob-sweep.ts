import type { MongoBlobStore } from '../commits/mongo-blob-store';
import type { MongoCommitStore } from '../commits/mongo-commit-store';
import type { Sweep } from '@margay/platform';

const MINUTE_MS = 60_000;
const BATCH = 50;
/** It begins when whoever was held up by an outage has had time to store what refers to a blob. */
const SETTLE_MS = 10 * MINUTE_MS;

export interface BlobSweepPorts {
  blobs: MongoBlobStore;
  store: MongoCommitStore;
}

/** Blobs that no commit refers to, and what is left of uploads that broke off. */
export function blobSweep({ blobs, store }: BlobSweepPorts): Sweep {
  return {
    name: 'blobs',
    everyMs: MINUTE_MS,
    settleMs: SETTLE_MS,
    async sweep() {
      const unused = await blobs.collect((tenantId, id) => store.refersTo(tenantId, id), BATCH);
      return unused + (await blobs.collectBroken(BATCH));
    },
  };
}
