import { createLogger } from '@margay/platform';
import { SandboxIsolation } from './sandbox-isolation';

const logger = createLogger({ service: 'spec', level: 'off' });
let isolation: SandboxIsolation;

function asked(answers: (string | Error)[]): { count: number } {
  const asked = { count: 0 };
  const listTools = async () => {
    const answer = answers[asked.count++] ?? answers.at(-1);
    if (answer instanceof Error) throw answer;
    return { toolsJson: [], isolation: answer, sandboxClasses: answer === 'none' ? [] : ['default', answer ?? ''] };
  };
  isolation = new SandboxIsolation({ listTools }, logger);
  isolation.start();
  return asked;
}

beforeEach(() => jest.useFakeTimers());
afterEach(() => {
  isolation.stop();
  jest.useRealTimers();
});

describe('how sandboxes are kept apart', () => {
  it.each([
    ['bwrap', undefined],
    ['pod', undefined],
    ['uid', 'uid'],
    ['none', 'none'],
  ])('%s is said as %s', async (answer, said) => {
    asked([answer]);
    await jest.advanceTimersByTimeAsync(0);
    expect(isolation.unusual).toBe(said);
  });

  it('is asked for again while tool-executor is away, and keeps what was known', async () => {
    const count = asked([new Error('away'), 'none', new Error('away again')]);
    await jest.advanceTimersByTimeAsync(0);
    expect(isolation.unusual).toBeUndefined();
    await jest.advanceTimersByTimeAsync(2_000);
    expect(isolation.unusual).toBe('none');
    await jest.advanceTimersByTimeAsync(60_000);
    expect(count.count).toBe(3);
    expect(isolation.unusual).toBe('none');
  });
});

describe('the classes that sandboxes can be of', () => {
  it('are asked for again when one is named that was not there', async () => {
    const count = asked(['bwrap', 'pod']);
    await jest.advanceTimersByTimeAsync(0);
    expect(await isolation.offers('bwrap')).toBe(true);
    expect(count.count).toBe(1);
    expect(await isolation.offers('pod')).toBe(true);
    expect(await isolation.offers('other')).toEqual(['default', 'pod']);
  });

  it('are any while nobody can tell', async () => {
    const count = asked([new Error('away'), new Error('away'), 'none']);
    await jest.advanceTimersByTimeAsync(0);
    expect(await isolation.offers('default')).toBe(true);
    expect(count.count).toBe(1);
    expect(await isolation.offers('other')).toBe(true);
    expect(await isolation.offers('other')).toBe(true);
  });
});
