import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { sandboxdPb } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import { createLogger, generateKeys, KeyRing, ManagementServer, parseConfig } from '@margay/platform';
import { ToolExecutorConfig } from '../config';
import { EgressTokens } from '../egress/egress-tokens';
import { openKubernetes } from '../kubernetes-driver/open-kubernetes';
import { podNameOf } from '../kubernetes-driver/pods';
import { ClusterFixture } from '../spec/cluster-fixture';
import { openProcess } from '../process-driver/open-process';
import { GrantKeys } from '../sandbox/grant-keys';
import { SandboxGrants } from '../sandbox/sandbox-grants';
import { SandboxConnection } from '../sandbox/sandbox-connection';
import { ServiceStore } from '../store/service-store';
import type { OpenDriver } from './open-driver';
import type { ClaimRequest, SandboxEndpoint, SandboxRef } from './sandbox-driver';

const BUNDLER = path.join(__dirname, '../../../sandboxd/bundle.mjs');
const logger = createLogger({ level: 'off' });

async function identity() {
  const home = mkdtempSync(path.join(tmpdir(), 'margay-home-'));
  const keysFolder = path.join(home, 'keys');
  const entry = path.join(home, 'sandboxd.cjs');
  execFileSync(process.execPath, [BUNDLER, entry]);
  await generateKeys(keysFolder, ['tool-executor']);
  const keys = await KeyRing.load(keysFolder, 'tool-executor');
  const grantKeys = new GrantKeys(keys);
  const settings = {
    MARGAY_TOOL_EXECUTOR_LISTEN: `unix:${home}/s`,
    MARGAY_KEYS_DIR: keysFolder,
    MARGAY_HOME: home,
    MARGAY_SANDBOXD_ENTRY: entry,
  };
  const tokens = new EgressTokens(keys);
  return { home, entry, tokens, grants: new SandboxGrants(keys), grantKeys, settings };
}

interface DriverUnderTest {
  open: OpenDriver;
  grants: SandboxGrants;
  /** Ends a sandbox as a crash of its machine would. */
  kill: (ref: SandboxRef) => Promise<void>;
  close: () => Promise<void>;
}

const CLAIM_MS = 60_000;

/** What every driver keeps, with real sandboxes. */
function describeDriver(name: string, start: () => Promise<DriverUnderTest>): void {
  describe(`the driver ${name}`, () => {
    let subject: DriverUnderTest;
    let sessions = 0;
    let calls = 0;
    beforeAll(async () => (subject = await start()), 600_000);
    afterAll(() => subject.close(), 60_000);

    const tokenOf = ({ tenantId, sessionId }: SandboxRef, { audience }: SandboxEndpoint, epoch = 1) =>
      subject.grants.token({ sandboxId: audience, tenantId, sessionId, storeGeneration: 0, epoch });

    const requestOf = (sessionId: string, epoch = 1): ClaimRequest => ({
      tenantId: 't1',
      sessionId,
      workspace: { kind: 'own' },
      minimum: { generation: 0, epoch },
      greet: async (ref, endpoint) => {
        const connection = await SandboxConnection.open(endpoint);
        try {
          await connection.hello(await tokenOf(ref, endpoint, epoch));
          return connection;
        } finally {
          connection.close();
        }
      },
    });

    /** Claims again while it is refused for the moment. */
    async function claim(sessionId: string, epoch = 1, verb: 'claim' | 'resume' = 'claim'): Promise<SandboxRef> {
      for (const until = performance.now() + CLAIM_MS; performance.now() < until;) {
        const answer = await subject.open.driver[verb](requestOf(sessionId, epoch));
        if ('ref' in answer) return answer.ref;
        await new Promise((resolve) => setTimeout(resolve, Math.min(answer.refusal.retryAfterMs ?? 0, 100)));
      }
      throw new Error('there was no sandbox in time');
    }

    async function shell(
      ref: SandboxRef,
      command: string,
      epoch = 1,
    ): Promise<{ stdout: string; incarnation: string }> {
      const endpoint = await subject.open.driver.endpoint(ref);
      const connection = await SandboxConnection.open(endpoint);
      try {
        const grant = await tokenOf(ref, endpoint, epoch);
        const incarnation = await connection.hello(grant);
        calls += 1;
        const fixed = { toolId: 'aider_shell_tool', effect: 'unkeyed', timeoutMs: 0, fromOffset: 0, incarnation };
        const argsJson = JSON.stringify({ command });
        const request: sandboxdPb.ExecuteRequest = { ...fixed, callId: `c${calls}`, argsJson, argHash: command };
        let finished: sandboxdPb.Finished | undefined;
        for await (const { message } of connection.client.execute(request, { grant }))
          if (message?.$case === 'finished') finished = message.value;
        const { stdout } = JSON.parse(finished?.resultJson ?? '{}') as { stdout: string };
        return { stdout, incarnation };
      } finally {
        connection.close();
      }
    }

    const fresh = (): string => `${name}-${(sessions += 1)}`;

    it('gives a session one sandbox that answers, however often it is claimed', async () => {
      const sessionId = fresh();
      const refs = await Promise.all([claim(sessionId), claim(sessionId), claim(sessionId)]);
      expect(new Set(refs.map(({ sandboxId }) => sandboxId)).size).toBe(1);
      const ref = refs[0] as SandboxRef;
      expect((await shell(ref, 'echo here')).stdout).toBe('here\n');
      expect(await subject.open.ledger.find('t1', sessionId)).toMatchObject({ sandboxId: ref.sandboxId });
      expect(await subject.open.ledger.isUsable(ref)).toBe(true);
      await subject.open.driver.release(ref, { reason: 'test', forget: 'everything' });
    }, 60_000);

    it('keeps the workspace of a sandbox that was suspended, and resumes on it', async () => {
      const sessionId = fresh();
      const ref = await claim(sessionId);
      await shell(ref, 'echo kept > file');
      await subject.open.driver.suspend(ref, 'idle');
      const again = await claim(sessionId, 1, 'resume');
      expect((await shell(again, 'cat file')).stdout).toBe('kept\n');
      await subject.open.driver.release(again, { reason: 'test', forget: 'everything' });
    }, 60_000);

    it('is another incarnation once its journal was forgotten, and ending it twice is ending it once', async () => {
      const sessionId = fresh();
      const ref = await claim(sessionId);
      const { incarnation } = await shell(ref, 'true');
      await subject.open.driver.release(ref, { reason: 'test', forget: 'journal' });
      await subject.open.driver.release(ref, { reason: 'test', forget: 'journal' });
      expect((await shell(await claim(sessionId), 'true')).incarnation).not.toBe(incarnation);
    }, 60_000);

    it('tells of a loss, and the next claim gives another life', async () => {
      const sessionId = fresh();
      const ref = await claim(sessionId);
      const lost = new Promise<SandboxRef>((resolve) => subject.open.driver.onLost(resolve));
      await subject.kill(ref);
      expect((await lost).sessionId).toBe(sessionId);
      expect((await shell(await claim(sessionId), 'echo alive')).stdout).toBe('alive\n');
    }, 60_000);

    it('remembers the highest epoch beyond the life of a sandbox, and starts the next one there', async () => {
      const sessionId = fresh();
      const { ledger, driver } = subject.open;
      const ref = await claim(sessionId, 3);
      await ledger.raiseEpoch('t1', sessionId, { generation: 0, epoch: 5 });
      await ledger.raiseEpoch('t1', sessionId, { generation: 0, epoch: 4 });
      expect(await ledger.highestEpoch('t1', sessionId)).toMatchObject({ generation: 0, epoch: 5 });
      await driver.release(ref, { reason: 'test', forget: 'journal' });
      const next = await claim(sessionId, 5);
      const stale = await shell(next, 'true', 4).catch((error: unknown) => error);
      expect(isMargayError(stale) && stale.reason).toBe('stale_epoch');
    }, 60_000);

    it('says how many sandboxes wait', async () => {
      const pool = await subject.open.driver.ensurePool({
        namespace: 'test',
        class: 'default',
        specHash: 'x',
        target: 0,
      });
      expect(pool).toMatchObject({ warming: 0, failing: 0 });
    });
  });
}

describeDriver('process', async () => {
  const { home, grants, grantKeys, settings } = await identity();
  const open = await openProcess(parseConfig(ToolExecutorConfig, settings), grantKeys, logger);
  const kill = async ({ sandboxId }: { sandboxId: string }) => {
    const record = path.join(home, 'sandboxes', sandboxId, 'record.json');
    if (!existsSync(record)) throw new Error('it was not started');
    const { processes } = JSON.parse(readFileSync(record, 'utf8')) as { processes: { pid: number }[] };
    for (const { pid } of processes) process.kill(pid, 'SIGKILL');
  };
  const close = async () => {
    for (const ref of open.ledger.survivors()) await open.driver.release(ref, { reason: 'test', forget: 'everything' });
    await open.close();
    rmSync(home, { recursive: true, force: true });
  };
  return { open, grants, kill, close };
});

describeDriver('kubernetes', async () => {
  const { home, entry, tokens, grants, grantKeys, settings } = await identity();
  const fixture = await new ClusterFixture().start();
  fixture.startKubelet(entry);
  const management = new ManagementServer({ listen: '127.0.0.1:0', logger });
  const config = parseConfig(ToolExecutorConfig, { ...settings, ...fixture.environment(0) });
  const store = new ServiceStore(config, { logger, management });
  const open = await openKubernetes({ config, store, grantKeys, grants, logger, management, tokens });
  const kill = async ({ sandboxId }: { sandboxId: string }) => {
    const pod = fixture.cluster.list('pods').find(({ metadata }) => metadata.name === podNameOf(sandboxId));
    if (!pod) throw new Error('it has no pod');
    await fixture.kubelet.kill(pod);
    fixture.cluster.remove(pod);
  };
  const close = async () => {
    await open.close();
    await store.close();
    await management.close();
    await fixture.close();
    rmSync(home, { recursive: true, force: true });
  };
  return { open, grants, kill, close };
});
