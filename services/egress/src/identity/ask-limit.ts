import { ResourceExhaustedError } from '@margay/errors';
import { LRUCache } from 'lru-cache';

/** A sandbox asks once a minute, and a few times while it becomes somebody's. */
const BURST = 20;
const PER_SECOND = 1;
const ADDRESSES = 10_000;

interface Bucket {
  tokens: number;
  filledAt: number;
}

/** How often it is asked on behalf of one address who that is: whoever guesses must not keep others busy. */
export class AskLimit {
  private readonly buckets = new LRUCache<string, Bucket>({ max: ADDRESSES });

  constructor(private readonly now: () => number) {}

  /** @throws ResourceExhaustedError `egress_limit` */
  take(address: string): void {
    const now = this.now();
    const bucket = this.buckets.get(address) ?? { tokens: BURST, filledAt: now };
    bucket.tokens = Math.min(BURST, bucket.tokens + ((now - bucket.filledAt) * PER_SECOND) / 1_000);
    bucket.filledAt = now;
    this.buckets.set(address, bucket);
    if (bucket.tokens < 1)
      throw new ResourceExhaustedError('egress_limit', 'Too many tries to show who asks; try again in some seconds.', {
        retryAfterMs: 1_000 / PER_SECOND,
      });
    bucket.tokens -= 1;
  }
}
