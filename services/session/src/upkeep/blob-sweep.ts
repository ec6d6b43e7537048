import type { MongoBlobStore } from '../commits/mongo-blob-store';
import type { Sweep } from '@margay/platform';

const MINUTE_MS = 60_000;
const BATCH = 50;
/** It begins when whoever was held up by an outage has had time to store what refers to a blob. */
const SETTLE_MS = 10 * MINUTE_MS;

/** Who may refer to a blob. */
interface BlobUser {
  refersTo(tenantId: string, blobId: string): Promise<boolean>;
}

export interface BlobSweepPorts {
  blobs: MongoBlobStore;
  users: BlobUser[];
}

/** Blobs that nobody refers to, and what is left of uploads that broke off. */
export function blobSweep({ blobs, users }: BlobSweepPorts): Sweep {
  const isUsed = async (tenantId: string, id: string): Promise<boolean> => {
    for (const user of users) if (await user.refersTo(tenantId, id)) return true;
    return false;
  };
  return {
    name: 'blobs',
    everyMs: MINUTE_MS,
    settleMs: SETTLE_MS,
    async sweep() {
      const unused = await blobs.collect(isUsed, BATCH);
      return unused + (await blobs.collectBroken(BATCH));
    },
  };
}
