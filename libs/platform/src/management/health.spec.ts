import { HealthChecks } from './health';

describe('HealthChecks', () => {
  it('counts a check that does not answer in time as failed', async () => {
    jest.useFakeTimers();
    try {
      const checks = new HealthChecks(2_000);
      checks.add('store', 'ready', () => new Promise(() => undefined));
      const report = checks.report('ready');
      await jest.advanceTimersByTimeAsync(2_000);
      expect(await report).toMatchObject({ failed: ['store'], checks: { store: { detail: 'no answer in 2000 ms' } } });
    } finally {
      jest.useRealTimers();
    }
  });
});
