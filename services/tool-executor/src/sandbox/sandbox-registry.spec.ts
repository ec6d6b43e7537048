import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { sandboxdPb, type RunGrant } from '@margay/contracts';
import { createLogger, generateKeys, GrpcServer, KeyRing } from '@margay/platform';
import { isLowerEpoch, type Epoch } from '../driver/epoch';
import {
  SandboxDriver,
  type Claim,
  type ClaimRequest,
  type LostListener,
  type ReleaseOptions,
  type SandboxRef,
} from '../driver/sandbox-driver';
import { SandboxLedger } from '../driver/sandbox-ledger';
import { SandboxGrants } from './sandbox-grants';
import { SandboxRegistry } from './sandbox-registry';

class FakeLedger extends SandboxLedger {
  isShared = false;
  readonly epochs = new Map<string, Epoch>();
  readonly touched: string[] = [];
  left: SandboxRef[] = [];
  isUnusable = false;

  async find(tenantId: string, sessionId: string): Promise<SandboxRef> {
    return { sandboxId: 'sb1', tenantId, sessionId };
  }

  async isUsable(): Promise<boolean> {
    return !this.isUnusable;
  }

  survivors(): SandboxRef[] {
    return this.left;
  }

  async highestEpoch(_tenantId: string, sessionId: string): Promise<Epoch | undefined> {
    return this.epochs.get(sessionId);
  }

  async raiseEpoch(_tenantId: string, sessionId: string, epoch: Epoch): Promise<void> {
    const known = this.epochs.get(sessionId);
    if (!known || isLowerEpoch(known, epoch)) this.epochs.set(sessionId, epoch);
  }

  async touch({ sessionId }: SandboxRef): Promise<void> {
    this.touched.push(sessionId);
  }
}

/** Sandboxes that only count what is asked of them, behind one real socket. */
class FakeDriver extends SandboxDriver {
  readonly isolation = 'none';
  readonly classes = ['default', 'dense'];
  readonly claims: ClaimRequest[] = [];
  readonly releases: ({ sessionId: string } & ReleaseOptions)[] = [];
  readonly answers: Claim[] = [];
  private listener: LostListener = () => undefined;

  constructor(private readonly address: string) {
    super();
  }

  async ensurePool() {
    return { warm: 0, warming: 0, failing: 0 };
  }

  async claim(request: ClaimRequest): Promise<Claim> {
    this.claims.push(request);
    const { tenantId, sessionId } = request;
    await ledger.raiseEpoch(tenantId, sessionId, request.minimum);
    return this.answers.shift() ?? { ref: { sandboxId: 'sb1', tenantId, sessionId }, path: 'cold' };
  }

  resume(request: ClaimRequest): Promise<Claim> {
    return this.claim(request);
  }

  async endpoint({ sandboxId }: SandboxRef) {
    return { address: this.address, audience: sandboxId };
  }

  async suspend(ref: SandboxRef, reason: string) {
    await this.release(ref, { reason, forget: 'nothing' });
    return {};
  }

  async release({ sessionId }: SandboxRef, options: ReleaseOptions): Promise<void> {
    this.releases.push({ sessionId, ...options });
  }

  onLost(listener: LostListener): void {
    this.listener = listener;
  }

  lose(sessionId: string): void {
    this.listener({ sandboxId: 'sb1', tenantId: 't1', sessionId }, 'test');
  }
}

const logger = createLogger({ level: 'off' });
const grantOf = (more: Partial<RunGrant> = {}): RunGrant => ({
  v: 1,
  tenantId: 't1',
  sessionId: 's1',
  runId: 'r1',
  epoch: 1,
  storeGeneration: 0,
  principal: 'user:ada',
  workspace: { kind: 'own' },
  ...more,
});

const refuse = () => Promise.reject(new Error('not part of this spec'));

let folder: string;
let server: GrpcServer;
let driver: FakeDriver;
let ledger: FakeLedger;
let registry: SandboxRegistry;
let now: number;
let claimed: unknown[];
let fences: { epoch: number; kill: boolean; background: boolean; grantEpoch: number }[];

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'margay-registry-'));
  await generateKeys(folder, ['tool-executor']);
  const keys = await KeyRing.load(folder, 'tool-executor');
  const listen = `unix:${folder}/s`;
  fences = [];
  claimed = [];
  server = new GrpcServer({ listen, keys, logger, sandboxId: 'sb1' }).add(sandboxdPb.SandboxdDefinition, {
    hello: async () => ({ version: '1', incarnation: 'i1', tools: [], isolation: 'none' }),
    execute: async function* () {},
    calls: () => undefined,
    cancelCall: async () => ({ state: 'not_found' }),
    fence: async (request, context) => {
      fences.push({ ...request, grantEpoch: context.sandboxGrant().epoch });
      return {};
    },
    forget: async () => ({}),
    placeAttachment: async () => ({ done: true, nextOffset: 0 }),
    ...{ listFiles: refuse, expandReferences: refuse, addWorktree: refuse, removeWorktree: refuse, restore: refuse },
    watchIndex: async function* () {},
    snapshot: async function* () {},
    shutdown: async () => ({}),
  });
  await server.start();
  now = 0;
  driver = new FakeDriver(listen);
  ledger = new FakeLedger();
  registry = new SandboxRegistry({
    driver,
    ledger,
    grants: new SandboxGrants(keys),
    idleStopMs: 900_000,
    logger,
    onClaimed: (sandbox) => claimed.push(sandbox),
    now: () => now,
  });
});
afterEach(async () => {
  await registry.close();
  await server.close(0);
  rmSync(folder, { recursive: true });
});

describe('SandboxRegistry', () => {
  it('claims once for calls that come at once, and not again while it lives', async () => {
    const [first, second] = await Promise.all([registry.obtain(grantOf()), registry.obtain(grantOf())]);
    expect(first).toBe(second);
    expect(await registry.obtain(grantOf({ epoch: 2 }))).toBe(first);
    expect(driver.claims).toHaveLength(1);
    expect(ledger.epochs.get('s1')?.epoch).toBe(2);
  });

  it('ends a sandbox 15 minutes after its last call, but none that is in use', async () => {
    const end = registry.use(await registry.obtain(grantOf()));
    now = 2_000_000;
    await registry.sweep();
    expect(driver.releases).toEqual([]);
    end();
    now += 899_999;
    await registry.sweep();
    expect(driver.releases).toEqual([]);
    now += 1;
    await registry.sweep();
    expect(driver.releases).toEqual([{ sessionId: 's1', forget: 'nothing', reason: 'idle' }]);
    await registry.obtain(grantOf());
    expect(driver.claims).toHaveLength(2);
  });

  it('lets a claim wait until the end of the same sandbox is over', async () => {
    await registry.obtain(grantOf());
    now = 1_000_000;
    const ended = registry.sweep();
    await registry.obtain(grantOf());
    expect(driver.releases).toHaveLength(1);
    expect(driver.claims).toHaveLength(2);
    await ended;
    expect(registry.find('t1', 's1')).toBeDefined();
  });

  it('claims again when the folder of its workspace has gone, but not under a running call', async () => {
    const sandbox = await registry.obtain(grantOf());
    ledger.isUnusable = true;
    const end = registry.use(sandbox);
    expect(await registry.obtain(grantOf())).toBe(sandbox);
    end();
    await registry.obtain(grantOf());
    expect(driver.releases).toHaveLength(1);
    expect(driver.claims).toHaveLength(2);
  });

  it('claims again after a loss, and for another workspace after ending the first', async () => {
    await registry.obtain(grantOf());
    driver.lose('s1');
    await registry.obtain(grantOf());
    expect(driver.claims).toHaveLength(2);
    await registry.obtain(grantOf({ workspace: { kind: 'path', path: '/p' } }));
    expect(driver.releases).toEqual([{ sessionId: 's1', forget: 'nothing', reason: 'other workspace' }]);
    expect(driver.claims[2]?.workspace).toEqual({ kind: 'path', path: '/p' });
  });

  it('claims one of another class after ending the first, and counts them by class', async () => {
    await registry.obtain(grantOf());
    expect(registry.inUse).toEqual({ ready: ['default'], claiming: [], ending: [] });
    const dense = registry.obtain(grantOf({ sandboxClass: 'dense' }));
    expect(await registry.obtain(grantOf({ sandboxClass: 'dense' }))).toBe(await dense);
    expect(driver.releases).toHaveLength(1);
    expect(driver.claims.map(({ sandboxClass }) => sandboxClass)).toEqual([undefined, 'dense']);
    expect(registry.inUse).toEqual({ ready: ['dense'], claiming: [], ending: [] });
  });

  it('claims none of a class that there is not', async () => {
    const claim = registry.obtain(grantOf({ sandboxClass: 'huge' }));
    await expect(claim).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', reason: 'sandbox_class_unknown' });
    expect(driver.claims).toEqual([]);
  });

  it('fences at the epoch named, and remembers it for a sandbox that does not run', async () => {
    await registry.obtain(grantOf());
    await registry.fence('t1', 's1', { epoch: 4, kill: true, background: true });
    expect(fences).toEqual([{ epoch: 4, kill: true, background: true, grantEpoch: 4 }]);
    await registry.fence('t1', 's2', { epoch: 9, kill: false, background: false });
    expect(ledger.epochs.get('s2')?.epoch).toBe(9);
  });

  it('does nothing for another tenant', async () => {
    await registry.obtain(grantOf());
    await registry.release('t2', 's1');
    await registry.fence('t2', 's1', { epoch: 9, kill: true, background: false });
    expect(driver.releases).toEqual([]);
    expect(fences).toEqual([]);
  });

  it('forgets the journal only when it is released', async () => {
    await registry.obtain(grantOf());
    await registry.release('t1', 's1');
    expect(driver.releases).toEqual([{ sessionId: 's1', forget: 'everything', reason: 'released' }]);
  });

  it('is released by who left its workspace, but not if a later run has it', async () => {
    await registry.obtain(grantOf({ epoch: 3 }));
    await registry.release('t1', 's1', 2);
    expect(driver.releases).toEqual([]);
    const next = registry.obtain(grantOf({ epoch: 4, workspace: { kind: 'path', path: '/p' } }));
    await registry.release('t1', 's1', 3);
    await next;
    expect(driver.releases.map(({ reason }) => reason)).toEqual(['other workspace']);
    await registry.release('t1', 's1', 4);
    expect(driver.releases.map(({ reason }) => reason)).toEqual(['other workspace', 'released']);
  });

  it('is found by its workspace, within its tenant, and told of when it comes into use', async () => {
    const sandbox = await registry.obtain(grantOf({ workspace: { kind: 'project', projectId: 'a'.repeat(32) } }));
    const key = `p/${'a'.repeat(32)}`;
    expect(registry.findIn('t1', key)).toBe(sandbox);
    expect(registry.findIn('t2', key)).toBeUndefined();
    expect(registry.findIn('t1', 's/s1')).toBeUndefined();
    expect(claimed).toEqual([sandbox]);
  });

  it('takes over what an earlier life left, and uses it for the next call', async () => {
    ledger.left = [{ sandboxId: 'sb1', tenantId: 't1', sessionId: 's1' }];
    await registry.adopt();
    expect(registry.find('t1', 's1')?.incarnation).toBe('i1');
    await registry.obtain(grantOf());
    expect(driver.releases).toEqual([]);
  });

  it('ends a left one that does not answer', async () => {
    ledger.left = [{ sandboxId: 'other', tenantId: 't1', sessionId: 's9' }];
    await registry.adopt();
    expect(driver.releases).toEqual([{ sessionId: 's9', forget: 'nothing', reason: 'unanswering' }]);
  });
});

describe('a claim that is refused for the moment', () => {
  const refusal = (more = {}) => ({
    refusal: { state: 'starting', reason: 'quota' as const, message: 'exceeded quota', retryAfterMs: 1, ...more },
  });

  it('is made again until there is a sandbox, and says meanwhile what it waits for', async () => {
    driver.answers.push(refusal(), refusal());
    const claim = jest.spyOn(driver, 'claim');
    const meanwhile: unknown[] = [];
    claim.mockImplementation(async (request) => {
      meanwhile.push(registry.refusalOf('s1'));
      return FakeDriver.prototype.claim.call(driver, request);
    });
    expect((await registry.obtain(grantOf())).ref.sandboxId).toBe('sb1');
    const told = expect.objectContaining({ reason: 'quota', message: 'exceeded quota' }) as unknown;
    expect(meanwhile).toEqual([undefined, told, told]);
    expect(registry.refusalOf('s1')).toBeUndefined();
  });

  it('fails where waiting does not help, and after ten minutes', async () => {
    driver.answers.push({ refusal: { state: 'failed', reason: 'image_pull', message: 'no such image' } });
    await expect(registry.obtain(grantOf())).rejects.toMatchObject({ reason: 'sandbox_unavailable' });
    driver.answers.push(...Array.from({ length: 1_000 }, () => refusal({ retryAfterMs: 5 })));
    const claim = registry.obtain(grantOf());
    while (driver.claims.length < 2) await new Promise((resolve) => setTimeout(resolve, 1));
    now += 600_001;
    await expect(claim).rejects.toThrow(/exceeded quota/);
  });

  it('ends when a later owner comes', async () => {
    driver.answers.push(...Array.from({ length: 1_000 }, () => refusal()));
    const claim = registry.obtain(grantOf());
    await ledger.raiseEpoch('t1', 's1', { generation: 0, epoch: 2 });
    await expect(claim).rejects.toMatchObject({ reason: 'stale_epoch' });
  });
});

describe('sandboxes that other replicas use, too', () => {
  beforeEach(() => (ledger.isShared = true));

  it('are reached by whoever must fence them, and outlive this process', async () => {
    await registry.fence('t1', 's1', { epoch: 4, kill: true, background: false });
    expect(fences).toEqual([{ epoch: 4, kill: true, background: false, grantEpoch: 4 }]);
    await registry.close();
    expect(driver.releases).toEqual([]);
  });

  it('are never ended for being idle here, and their use is recorded', async () => {
    const end = registry.use(await registry.obtain(grantOf()));
    await registry.sweep();
    end();
    expect(ledger.touched.length).toBeGreaterThanOrEqual(3);
    now = 1_000_000;
    await registry.sweep();
    expect(driver.releases).toEqual([]);
    expect(registry.find('t1', 's1')).toBeUndefined();
  });
});

describe('SandboxGrants', () => {
  it('signs the same thing once per half minute', async () => {
    const grants = new SandboxGrants(await KeyRing.load(folder, 'tool-executor'));
    const grant = { sandboxId: 'sb1', tenantId: 't1', sessionId: 's1', storeGeneration: 0, epoch: 1 };
    const first = await grants.token(grant);
    expect(await grants.token(grant)).toBe(first);
    expect(await grants.token({ ...grant, epoch: 2 })).not.toBe(first);
  });
});
