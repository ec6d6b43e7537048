import { createLogger } from './logging/logger';
import { Shutdown } from './shutdown';

const logger = createLogger({ service: 'test', level: 'off' });

describe('Shutdown', () => {
  it('turns readiness off first, then closes in reverse order, once', async () => {
    const order: string[] = [];
    const shutdown = new Shutdown({ logger, limitMs: 1_000, onBegin: () => order.push('not ready') });
    shutdown.add('store', () => void order.push('store'));
    shutdown.add('gateway', async () => void order.push('gateway'));
    await Promise.all([shutdown.run('SIGTERM'), shutdown.run('SIGINT')]);
    expect(order).toEqual(['not ready', 'gateway', 'store']);
  });

  it('closes the others when one fails', async () => {
    const order: string[] = [];
    const shutdown = new Shutdown({ logger, limitMs: 1_000 });
    shutdown.add('store', () => void order.push('store'));
    shutdown.add('gateway', () => Promise.reject(new Error('busy')));
    await shutdown.run('SIGTERM');
    expect(order).toEqual(['store']);
  });

  it('names the part that hangs when the limit passes', async () => {
    jest.useFakeTimers();
    try {
      const shutdown = new Shutdown({ logger, limitMs: 10_000 });
      shutdown.add('session', () => new Promise(() => undefined));
      const failure = expect(shutdown.run('SIGTERM')).rejects.toMatchObject({
        reason: 'shutdown_timeout',
        message: expect.stringContaining('session'),
      });
      await jest.advanceTimersByTimeAsync(10_000);
      await failure;
    } finally {
      jest.useRealTimers();
    }
  });
});
