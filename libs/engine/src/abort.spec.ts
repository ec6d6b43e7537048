import { untilAborted } from './abort';

describe('waiting until a signal aborts', () => {
  const left: unknown[] = [];
  const note = (error: unknown): void => void left.push(error);

  beforeEach(() => {
    left.length = 0;
    process.on('unhandledRejection', note);
  });
  afterEach(() => process.off('unhandledRejection', note));

  it('leaves no rejection behind where the signal had aborted before', async () => {
    const reason = new Error('stopped');
    const late = Promise.reject(new Error('too late to matter'));
    await expect(untilAborted(late, AbortSignal.abort(reason))).rejects.toBe(reason);
    await new Promise((resolve) => setImmediate(resolve));
    expect(left).toEqual([]);
  });

  it('gives up a promise at once, and whatever becomes of it later', async () => {
    const stopping = new AbortController();
    let fail: (error: Error) => void = () => undefined;
    const pending = new Promise<never>((_, reject) => (fail = reject));
    const waiting = untilAborted(pending, stopping.signal);
    stopping.abort(new Error('stopped'));
    await expect(waiting).rejects.toThrow('stopped');
    fail(new Error('late'));
    await new Promise((resolve) => setImmediate(resolve));
    expect(left).toEqual([]);
  });
});
