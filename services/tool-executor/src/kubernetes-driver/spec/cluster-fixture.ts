import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { openStore, TEST_SOURCES, type OpenStore } from '@margay/launcher';
import { createLogger } from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import { ExecutorFixture } from '../../executor-fixture';
import { LABEL } from '../labels';
import type { SandboxRow } from '../sandbox-row';
import { FakeCluster, type FakeObject } from './fake-cluster';
import { FakeKubelet } from './fake-kubelet';

const NAMESPACE = 'test';

/** For specs: replicas of tool-executor on a false cluster whose pods are real daemons, with a real store. */
export class ClusterFixture {
  readonly cluster = new FakeCluster();
  readonly replicas: ExecutorFixture[] = [];
  kubelet!: FakeKubelet;
  private readonly folder = mkdtempSync(path.join(tmpdir(), 'margay-cluster-'));
  private readonly database = `spec_${randomBytes(6).toString('hex')}`;
  private store?: OpenStore;
  private mongo?: MongoConnection;
  private address = '';

  constructor(private readonly firstAddress: number) {}

  async start(): Promise<this> {
    this.address = await this.cluster.start();
    const directory = path.join(this.folder, 'store');
    mkdirSync(directory);
    this.store = await openStore({ directory, allow: TEST_SOURCES });
    const logger = createLogger({ level: 'off' });
    this.mongo = new MongoConnection({ url: this.store.url, database: this.database, logger, name: 'spec' });
    await this.mongo.ready(30_000);
    return this;
  }

  /** @param warm how many sandboxes wait */
  async replica(warm: number, more: Record<string, string> = {}): Promise<ExecutorFixture> {
    const fixture = new ExecutorFixture(this.replicas[0]?.keysFolder);
    this.replicas.push(fixture);
    await fixture.start({
      MARGAY_SANDBOX_DRIVER: 'kubernetes',
      MARGAY_KUBECONFIG: this.kubeconfig(),
      MARGAY_WORKSPACES_NAMESPACE: NAMESPACE,
      MARGAY_INSTALL_ID: 'spec',
      MARGAY_SANDBOX_IMAGE: 'spec.test/sandbox:1',
      MARGAY_SANDBOX_CLASSES_FILE: this.classes(warm),
      MARGAY_SANDBOX_POOL_SECONDS: '0.2',
      MARGAY_MONGODB_URL: this.store?.url ?? '',
      MARGAY_MONGODB_DATABASE: this.database,
      ...more,
    });
    const { folder, firstAddress, cluster } = this;
    this.kubelet ??= new FakeKubelet(cluster, { folder, bundle: fixture.entry, firstAddress });
    return fixture;
  }

  get url(): string {
    return this.address;
  }

  rows(): Promise<SandboxRow[]> {
    return this.mongo?.connection.db?.collection<SandboxRow>('sandboxes').find().toArray() as Promise<SandboxRow[]>;
  }

  podsOf(sessionId: string): FakeObject[] {
    return this.cluster.list('pods').filter(({ metadata }) => metadata.labels?.[LABEL.session] === sessionId);
  }

  async until(isTrue: () => boolean | Promise<boolean>): Promise<void> {
    while (!(await isTrue())) await delay(10);
  }

  async untilWarm(count: number): Promise<void> {
    await this.until(async () => (await this.rows()).filter(({ state }) => state === 'warm').length === count);
  }

  async close(): Promise<void> {
    for (const replica of this.replicas) await replica.remove();
    await this.kubelet?.close();
    await this.mongo?.connection.dropDatabase();
    await this.mongo?.close();
    await this.store?.stop();
    await this.cluster.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  private kubeconfig(): string {
    const file = path.join(this.folder, 'kubeconfig.json');
    const named = { name: 'fake', context: { cluster: 'fake', user: 'fake' } };
    const cluster = { server: this.address, 'insecure-skip-tls-verify': true };
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'fake', cluster }],
      users: [{ name: 'fake', user: { token: 'spec' } }],
      contexts: [named],
      'current-context': 'fake',
    };
    writeFileSync(file, JSON.stringify(config));
    return file;
  }

  private classes(warm: number): string {
    const file = path.join(this.folder, `classes-${warm}.yaml`);
    const kind = {
      cpu: { request: '100m', limit: '1' },
      memory: { request: '64Mi', limit: '512Mi' },
      workspace: '1Gi',
      scratch: '1Gi',
      storage: 'volume',
      egress: 'none',
      warm: { min: warm, max: warm },
    };
    writeFileSync(file, JSON.stringify({ default: kind }));
    return file;
  }
}
