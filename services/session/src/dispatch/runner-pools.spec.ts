import { SessionConfig } from '../config';
import { RunnerPools } from './runner-pools';

const base = {
  MARGAY_SESSION_LISTEN: '127.0.0.1:0',
  MARGAY_MONGODB_URL: 'mongodb://127.0.0.1',
  MARGAY_NATS_URL: 'nats://127.0.0.1',
  MARGAY_KEYS_DIR: '/keys',
  MARGAY_KEK_FILE: '/keys/kek.json',
  MARGAY_TOOL_EXECUTOR_URL: '127.0.0.1:1',
};
const configured = (pools: string) => SessionConfig.safeParse({ ...base, MARGAY_RUNNER_POOLS: pools });

describe('runner pools', () => {
  const pools = new RunnerPools('default', { big: ['acme', 'umbra'], gpu: ['lab'] });

  it('gives tenants the pool of their own, and all others the shared one', () => {
    expect(['acme', 'umbra', 'lab', 'anyone'].map((tenant) => pools.of(tenant))).toEqual([
      'big',
      'big',
      'gpu',
      'default',
    ]);
  });

  it('names them all, the shared one first', () => {
    expect(pools.names).toEqual(['default', 'big', 'gpu']);
  });

  it('are read from a JSON object', () => {
    expect(configured('{"big":["acme"]}').data?.MARGAY_RUNNER_POOLS).toEqual({ big: ['acme'] });
    expect(configured('{"old":[]}').data?.MARGAY_RUNNER_POOLS).toEqual({ old: [] });
    expect(SessionConfig.parse(base).MARGAY_RUNNER_POOLS).toEqual({});
  });

  it.each([
    ['{"big":["acme"],"gpu":["acme"]}', "tenant 'acme' is in two pools"],
    ['{"default":["acme"]}', "'default' is the shared pool"],
    ['big', 'is not JSON'],
  ])('refuses %s in words', (text, words) => {
    expect(configured(text).error?.message).toContain(words);
  });
});
