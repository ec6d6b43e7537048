import { UnavailableError, UnimplementedError } from '@margay/errors';
import { createLogger } from '@margay/platform';
import { VersionGate } from './version-gate';

const logger = createLogger({ service: 'spec', level: 'off' });
let answer: () => Promise<string>;
let left: boolean[];
let gate: VersionGate;

beforeEach(() => {
  [answer, left] = [async () => '1.1.0', []];
  const beat = (leaves: boolean) => {
    left.push(leaves);
    return answer();
  };
  gate = new VersionGate({ beat }, '1.1.0', logger);
});

describe('the gate of versions', () => {
  it('is open beside session replicas of its own version and newer ones', async () => {
    for (const version of ['1.1.0', '1.2.0', '']) {
      answer = async () => version;
      await gate.ask();
      gate.check();
    }
  });

  it('is closed while an older replica lives, and says which', async () => {
    answer = async () => '1.0.9';
    await gate.ask();
    expect(() => gate.check()).toThrow(/session replica of version 1.0.9 still lives; 1.1.0 waits/);
    answer = async () => '1.1.0';
    await gate.ask();
    gate.check();
  });

  it('takes a replica that knows no beats for an older one', async () => {
    answer = () => Promise.reject(new UnimplementedError('unknown_method', 'no such method'));
    await gate.ask();
    expect(gate.isClosed).toBe(true);
  });

  it('leaves it to other checks when nobody answers', async () => {
    answer = async () => '1.0.0';
    await gate.ask();
    answer = () => Promise.reject(new UnavailableError('away', 'nobody is there'));
    await gate.ask();
    expect(gate.isClosed).toBe(false);
  });

  it('says that it leaves', async () => {
    await gate.start();
    await gate.stop();
    expect(left).toEqual([false, true]);
  });
});
