import { ResourceExhaustedError } from '@margay/errors';
import { LRUCache } from 'lru-cache';

export interface RateLimit {
  perSecond: number;
  burst: number;
}

interface Bucket {
  tokens: number;
  filledAtMs: number;
}

const TENANTS = 20_000;

/** A token bucket per tenant, of this replica. */
export class RateLimiter {
  private readonly buckets = new LRUCache<string, Bucket>({ max: TENANTS });

  constructor(
    private readonly limit: RateLimit,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Throws RESOURCE_EXHAUSTED `rate_limited` telling when the next request will do. */
  take(tenantId: string): void {
    const { perSecond, burst } = this.limit;
    const nowMs = this.now();
    const bucket = this.buckets.get(tenantId) ?? { tokens: burst, filledAtMs: nowMs };
    bucket.tokens = Math.min(burst, bucket.tokens + ((nowMs - bucket.filledAtMs) * perSecond) / 1_000);
    bucket.filledAtMs = nowMs;
    this.buckets.set(tenantId, bucket);
    if (bucket.tokens < 1) {
      const retryAfterMs = Math.ceil(((1 - bucket.tokens) * 1_000) / perSecond);
      const message = `more than ${perSecond} requests a second; try again shortly`;
      throw new ResourceExhaustedError('rate_limited', message, { retryAfterMs });
    }
    bucket.tokens -= 1;
  }
}
