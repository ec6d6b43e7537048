import { errorOf } from '@margay/errors';
import { createLogger } from '@margay/platform';
import { workspaceIdOf } from '../driver/workspace-key';
import type { LiveSandbox } from '../sandbox/sandbox-claims';
import { EMPTY_CONTENT } from './index-store-fixture';
import { IndexFollower } from './index-follower';

type Message = { index?: typeof EMPTY_CONTENT; ageMs: number; workspacePercent?: number };

let told: string[];
let watches: number;
let isLive: boolean;
let follower: IndexFollower;
let answer: () => AsyncIterable<Message>;

const place = { tenantId: 't1', workspaceId: workspaceIdOf('t1', 'p/x') };

beforeEach(() => {
  jest.useFakeTimers();
  [told, watches, isLive] = [[], 0, true];
  follower = new IndexFollower({
    index: {
      save: async (of, found, at) =>
        void told.push(`${of.workspaceId === place.workspaceId} ${found.files.join()} ${at}`),
      confirm: async () => void told.push('same'),
    },
    onSpace: ({ ref }, percent) => void told.push(`${ref.sandboxId} ${percent} %`),
    tokenFor: async () => 'token',
    isLive: () => isLive,
    now: () => 100,
    logger: createLogger({ service: 'spec', level: 'off' }),
  });
});
afterEach(() => {
  follower.close();
  jest.useRealTimers();
});

const sandbox = () =>
  ({
    ref: { tenantId: 't1', sessionId: 's', sandboxId: 'x' },
    workspaceKey: 'p/x',
    connection: {
      client: {
        watchIndex: () => {
          watches += 1;
          return answer();
        },
      },
    },
  }) as unknown as LiveSandbox;

describe('following the index of a sandbox', () => {
  it('stores what it tells, and that nothing has changed', async () => {
    answer = async function* () {
      yield { index: { ...EMPTY_CONTENT, files: ['a'] }, ageMs: 3 };
      yield { ageMs: 0 };
      await new Promise(() => undefined);
    };
    follower.follow(sandbox());
    await jest.advanceTimersByTimeAsync(600);
    expect(told).toEqual(['true a 97', 'same']);
  });

  it('tells how full the workspace is, as often as the sandbox says it', async () => {
    answer = async function* () {
      yield { ageMs: 0, workspacePercent: 80 };
      yield { ageMs: 0 };
      await new Promise(() => undefined);
    };
    follower.follow(sandbox());
    await jest.advanceTimersByTimeAsync(600);
    expect(told).toEqual(['x 80 %', 'same', 'same']);
  });

  it('is taken up again when it breaks off, as long as the sandbox is in use', async () => {
    answer = async function* () {
      yield { ageMs: 0 };
      throw errorOf('UNAVAILABLE', 'unavailable', 'gone');
    };
    follower.follow(sandbox());
    await jest.advanceTimersByTimeAsync(6_000);
    expect(watches).toBe(2);
    isLive = false;
    await jest.advanceTimersByTimeAsync(60_000);
    expect(watches).toBe(2);
  });

  it('is done once for each sandbox, and not with those that cannot', async () => {
    answer = async function* () {
      throw errorOf('UNIMPLEMENTED', 'unimplemented', 'older');
    };
    const one = sandbox();
    follower.follow(one);
    follower.follow(one);
    await jest.advanceTimersByTimeAsync(60_000);
    expect(watches).toBe(1);
  });
});
