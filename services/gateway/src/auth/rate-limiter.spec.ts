import { RateLimiter } from './rate-limiter';

describe('RateLimiter', () => {
  let nowMs = 0;
  const limiter = () => new RateLimiter({ perSecond: 10, burst: 2 }, () => nowMs);

  it('lets a burst through, then one request per tenth of a second', () => {
    const subject = limiter();
    subject.take('a');
    subject.take('a');
    expect(() => subject.take('a')).toThrow(expect.objectContaining({ reason: 'rate_limited', retryAfterMs: 100 }));
    nowMs += 100;
    subject.take('a');
    expect(() => subject.take('a')).toThrow(/more than 10 requests/);
  });

  it('refills to the burst, not beyond', () => {
    const subject = limiter();
    subject.take('a');
    nowMs += 60_000;
    subject.take('a');
    subject.take('a');
    expect(() => subject.take('a')).toThrow();
  });

  it('counts each tenant alone', () => {
    const subject = limiter();
    for (const tenant of ['a', 'b', 'a', 'b']) subject.take(tenant);
    expect(() => subject.take('a')).toThrow();
  });
});
