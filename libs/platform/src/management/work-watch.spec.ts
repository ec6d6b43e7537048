import { WorkWatch } from './work-watch';

it('tells the age of the oldest work that has not ended, and passes outcomes on', async () => {
  let nowMs = 0;
  const watch = new WorkWatch(() => nowMs);
  const ends: (() => void)[] = [];
  const work = () => new Promise<string>((resolve) => ends.push(() => resolve('done')));
  const first = watch.track(work());
  nowMs = 1_000;
  void watch.track(work());
  await expect(watch.track(Promise.reject(new Error('failed')))).rejects.toThrow('failed');
  nowMs = 5_000;
  expect(watch.oldestMs).toBe(5_000);
  ends[0]?.();
  expect(await first).toBe('done');
  expect(watch.oldestMs).toBe(4_000);
  ends[1]?.();
  await new Promise(setImmediate);
  expect(watch.oldestMs).toBe(0);
});
