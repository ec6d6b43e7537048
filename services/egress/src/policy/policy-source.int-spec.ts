import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { egressPb } from '@margay/contracts';
import { UnavailableError } from '@margay/errors';
import { createLogger, generateKeys, GrpcServer, KeyRing, ManagementServer } from '@margay/platform';
import { startEgress } from '../start-egress';
import { SessionPolicySource } from './policy-source';

/** session as far as the proxy reads policies from it. */
const { listEgressPolicies } = egressPb.EgressDefinition.methods;
const Known = { ...egressPb.EgressDefinition, methods: { listEgressPolicies } } as const;

const TENANTS = 320;
/** Fit into one message. */
const FEW = 100;
const logger = createLogger({ level: 'off' });
const host = (at: number) => `${'h'.repeat(60)}${at}.example.com`;
/** One of almost 64 KiB, the largest that session takes; its first rule names the tenant. */
const policyJson = JSON.stringify({
  rules: Array.from({ length: 8 }, (_, rule) => ({
    id: `r${rule}`,
    hosts: Array.from({ length: 100 }, (_none, at) => host(rule * 100 + at)),
  })),
});
const tenants = Array.from({ length: TENANTS }, (_, at) => `t${String(at).padStart(4, '0')}`);

let folder: string;
let asked: egressPb.ListEgressPoliciesRequest[];
let mark: string;
let isDownAt: string | undefined;
/** A session of before there were pages. */
let isOld: boolean;
let address: string;
let closers: (() => Promise<unknown> | void)[] = [];

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'margay-policies-'));
  await generateKeys(folder, ['egress', 'session', 'tool-executor']);
});
afterAll(() => rm(folder, { recursive: true }));
beforeEach(async () => {
  [asked, mark, isDownAt, isOld] = [[], 'm1', undefined, false];
  const server = new GrpcServer({ listen: '127.0.0.1:0', keys: await KeyRing.load(folder, 'session'), logger });
  server.add(Known, {
    listEgressPolicies: async (request) => {
      asked.push(request);
      const { known, after, pageBytes = Infinity } = request;
      if (isDownAt !== undefined && after >= isDownAt) throw new UnavailableError('unreachable', 'Down.');
      if (known === mark) return { mark, unchanged: true, policies: [], next: '' };
      const count = isOld ? FEW : Math.ceil(pageBytes / policyJson.length);
      const rest = isOld ? tenants.slice(0, count) : tenants.filter((tenant) => tenant > after);
      const some = rest.slice(0, count).map((tenantId) => ({ tenantId, policyJson }));
      return { mark, unchanged: false, policies: some, next: rest.length > count ? (some.at(-1)?.tenantId ?? '') : '' };
    },
  });
  address = `127.0.0.1:${(await server.start()).port}`;
  closers = [() => server.close(50)];
});
afterEach(async () => {
  for (const close of closers.reverse()) await close();
});

async function open(): Promise<SessionPolicySource> {
  const source = new SessionPolicySource(address, await KeyRing.load(folder, 'egress'), logger);
  closers.push(() => source.close());
  return source;
}

describe('policies that are asked of session', () => {
  it('are read to the last one, though they are far more than one message may have', async () => {
    expect(policyJson.length).toBeGreaterThan(55_000);
    const { mark: read, policies } = await (await open()).list('');
    expect(read).toBe('m1');
    expect([...(policies?.keys() ?? [])]).toEqual(tenants);
    expect(policies?.get('t0319')).toBe(policyJson);
    expect(asked.length).toBeGreaterThan(10);
  });

  it('are asked for once while nothing changes', async () => {
    expect(await (await open()).list('m1')).toEqual({ mark: 'm1' });
    expect(asked).toHaveLength(1);
  });

  it('are none at all where one page is missing', async () => {
    isDownAt = 't0100';
    await expect((await open()).list('')).rejects.toThrow();
  });

  it('are read of a session that knows no pages', async () => {
    isOld = true;
    expect((await (await open()).list('')).policies?.size).toBe(FEW);
    expect(asked).toHaveLength(1);
  });
});

describe('a proxy', () => {
  async function start(): Promise<ManagementServer> {
    const file = path.join(folder, 'policy.json');
    await writeFile(file, '{}');
    const management = new ManagementServer({ listen: '127.0.0.1:0', logger });
    const running = await startEgress(
      {
        MARGAY_EGRESS_POLICY_FILE: file,
        MARGAY_EGRESS_LOCAL_SOCKET: path.join(folder, 'private', 'relay.sock'),
        MARGAY_SESSION_URL: address,
        MARGAY_KEYS_DIR: folder,
        MARGAY_EGRESS_DRAIN_SECONDS: '0',
      },
      { logger, management },
    );
    closers.push(async () => {
      await running.close();
      await management.close();
    });
    return management;
  }

  const readiness = async (management: ManagementServer, port: number) => {
    const response = await fetch(`http://127.0.0.1:${port}/readyz`);
    const { checks } = (await response.json()) as { checks: Record<string, { status: string; detail?: string }> };
    const metrics = await management.registry.metrics();
    const [, age] = /^margay_egress_policies_age_seconds (\S+)$/m.exec(metrics) ?? [];
    return { status: response.status, check: checks['egress.policy'], ageSeconds: Number(age) };
  };

  it('is not ready until it has read them all, and says so while it cannot read them later', async () => {
    isDownAt = 't0050';
    const management = await start();
    const { port } = await management.start();
    management.setReady(true);
    const until = async (status: string) => {
      for (;;) {
        const now = await readiness(management, port);
        if (now.check?.status === status) return now;
        await delay(50);
      }
    };
    const before = await until('failed');
    expect(before.status).toBe(503);
    isDownAt = undefined;
    expect((await until('ok')).status).toBe(200);
    isDownAt = '';
    const after = await until('degraded');
    expect(after).toMatchObject({ status: 200, check: { detail: expect.stringContaining('what was known before holds') as string } }); // prettier-ignore
    expect(after.ageSeconds).toBeGreaterThan(0);
  });
});
