import { getEventListeners } from 'node:events';
import { pause } from './pause';

beforeEach(() => jest.useFakeTimers());
afterEach(() => jest.useRealTimers());

it('waits for the time given', async () => {
  const { signal } = new AbortController();
  const over = jest.fn();
  const pausing = pause(1_000, signal).then(over);
  await jest.advanceTimersByTimeAsync(999);
  expect(over).not.toHaveBeenCalled();
  await jest.advanceTimersByTimeAsync(1);
  await pausing;
  expect(over).toHaveBeenCalledTimes(1);
  expect(getEventListeners(signal, 'abort')).toEqual([]);
});

it('ends with its signal, and leaves no timer behind', async () => {
  const controller = new AbortController();
  const pausing = pause(1_000, controller.signal);
  controller.abort();
  await pausing;
  expect(jest.getTimerCount()).toBe(0);
});

it('does not wait where the signal came before', async () => {
  await pause(1_000, AbortSignal.abort());
  expect(jest.getTimerCount()).toBe(0);
});
