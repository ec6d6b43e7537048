import { createLogger } from '@margay/platform';
import { endAboveMemory } from './memory-watch';
import { EXIT } from './messages';

const BYTES_PER_MB = 1024 * 1024;
const lines: string[] = [];

beforeEach(() => jest.useFakeTimers());
afterEach(() => {
  jest.useRealTimers();
  jest.restoreAllMocks();
});

it('ends the process, and says so, once it takes half a gigabyte more than its heap', () => {
  const exit = jest.spyOn(process, 'exit').mockReturnValue(undefined as never);
  const rss = jest.spyOn(process.memoryUsage, 'rss').mockReturnValue((128 + 512) * BYTES_PER_MB);
  endAboveMemory(128, createLogger({ write: (line) => lines.push(line) }));
  jest.advanceTimersByTime(5_000);
  expect(exit).not.toHaveBeenCalled();
  rss.mockReturnValue((128 + 512) * BYTES_PER_MB + 1);
  jest.advanceTimersByTime(500);
  expect(exit.mock.calls).toEqual([[EXIT.memory]]);
  expect(lines).toEqual([expect.stringContaining('takes too much memory and ends')]);
});
