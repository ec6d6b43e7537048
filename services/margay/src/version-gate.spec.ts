import { UnavailableError, UnimplementedError } from '@margay/errors';
import { createLogger } from '@margay/platform';
import { VersionGate, type Neighbours } from './version-gate';

const logger = createLogger({ service: 'spec', level: 'off' });
const nobody = { lowestSessionVersion: '', olderServer: '', newerClient: '' };
let answer: () => Promise<Neighbours>;
let left: boolean[];
let gate: VersionGate;

afterEach(() => gate.stop());

beforeEach(() => {
  [answer, left] = [async () => ({ ...nobody, lowestSessionVersion: '1.1.0' }), []];
  const beat = (leaves: boolean) => {
    left.push(leaves);
    return answer();
  };
  gate = new VersionGate({ beat }, '1.1.0', logger);
});

describe('the gate of versions', () => {
  it.each(['1.1.0', '1.2.0', ''])('is open beside session replicas of version %j', async (version) => {
    answer = async () => ({ ...nobody, lowestSessionVersion: version });
    await gate.ask();
    gate.check();
  });

  it('is closed while an older replica lives, and says which', async () => {
    answer = async () => ({ ...nobody, lowestSessionVersion: '1.0.9' });
    await gate.ask();
    expect(() => gate.check()).toThrow(/session replica of version 1.0.9 still lives; 1.1.0 waits/);
    answer = async () => ({ ...nobody, lowestSessionVersion: '1.1.0' });
    await gate.ask();
    gate.check();
  });

  it('says whose turn it is: not before session has answered, and for good from then on', async () => {
    expect(gate.isItsTurn()).toBe(false);
    answer = async () => ({ ...nobody, lowestSessionVersion: '1.0.9' });
    await gate.ask();
    expect(gate.isItsTurn()).toBe(false);
    answer = async () => nobody;
    await gate.ask();
    expect(gate.isItsTurn()).toBe(true);
    answer = async () => ({ ...nobody, lowestSessionVersion: '1.0.9' });
    await gate.ask();
    expect(gate.isItsTurn()).toBe(true);
  });

  it('takes a replica that knows no beats for an older one', async () => {
    answer = () => Promise.reject(new UnimplementedError('unknown_method', 'no such method'));
    await gate.ask();
    expect(gate.isClosed).toBe(true);
  });

  it('is closed while an older server of another kind lives', async () => {
    answer = async () => ({ ...nobody, olderServer: 'tool-executor of version 1.0.9' });
    await gate.ask();
    expect(() => gate.check()).toThrow(/tool-executor of version 1.0.9 still lives; 1.1.0 waits/);
  });

  it('is closed while a newer client lives, unless it has been in service before', async () => {
    const withNewer = async () => ({ ...nobody, newerClient: 'agent-runner of version 1.2.0' });
    answer = withNewer;
    await gate.ask();
    expect(() => gate.check()).toThrow(/agent-runner of version 1.2.0/);
    answer = async () => nobody;
    await gate.ask();
    gate.check();
    answer = withNewer;
    await gate.ask();
    gate.check();
  });

  it('stays open in a roll-back, whose older servers come up while this process is still needed', async () => {
    await gate.ask();
    gate.check();
    answer = async () => ({ ...nobody, lowestSessionVersion: '1.0.9', olderServer: 'mcp-pool of version 1.0.9' });
    await gate.ask();
    gate.check();
    expect(gate.isClosed).toBe(false);
  });

  it('is closed until session has answered for the first time', async () => {
    answer = () => Promise.reject(new UnavailableError('away', 'nobody is there'));
    await gate.start();
    expect(() => gate.check()).toThrow(/session has not said yet which versions live/);
    expect(gate.isClosed).toBe(true);
    answer = async () => nobody;
    await gate.ask();
    gate.check();
  });

  it.each(['1.1.0', '1.0.0'])('holds on to what it heard last, version %s, while nobody answers', async (version) => {
    answer = async () => ({ ...nobody, lowestSessionVersion: version });
    await gate.ask();
    const wasClosed = gate.isClosed;
    answer = () => Promise.reject(new UnavailableError('away', 'nobody is there'));
    await gate.ask();
    expect(gate.isClosed).toBe(wasClosed);
  });

  it('says that it leaves', async () => {
    await gate.start();
    await gate.stop();
    expect(left).toEqual([false, true]);
  });
});
