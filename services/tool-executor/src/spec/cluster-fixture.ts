import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { openStore, TEST_SOURCES, type OpenStore } from '@margay/launcher';
import { createLogger } from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import { removeTree } from '@margay/toolbox';
import type { Collection, Document } from 'mongodb';
import { ExecutorFixture } from '../executor-fixture';
import { readClasses } from '../kubernetes-driver/classes';
import { KubernetesApi } from '../kubernetes-driver/kubernetes-api';
import { LABEL, selectorOf } from '../kubernetes-driver/labels';
import { PoolSettings } from '../kubernetes-driver/pool-settings';
import type { SandboxContext } from '../kubernetes-driver/sandbox-context';
import { SandboxRepository } from '../kubernetes-driver/sandbox.repository';
import { WorkspaceRepository, type WorkspaceRow } from '../kubernetes-driver/workspace.repository';
import { WaitingRepository } from '../kubernetes-driver/waiting.repository';
import type { SandboxRow } from '../kubernetes-driver/sandbox-row';
import { FakeCluster, type FakeObject } from './fake-cluster';
import { FakeKubelet } from './fake-kubelet';

const NAMESPACE = 'test';
const INSTALL = 'spec';
/** That of one tenant alone. */
export const OWN_NAMESPACE = 'team';
export const OWN_TENANT = 't-team';
/** Longer than anything takes on a slow machine; tests that wait so long have failed. */
const WAIT_MS = 50_000;

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

  constructor(private readonly storage: 'volume' | 'snapshot' = 'volume') {}

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
    await fixture.start({ ...this.environment(warm), ...more });
    this.startKubelet(fixture.entry);
    return fixture;
  }

  /** What tool-executor needs to know of it. @param warm how many sandboxes wait */
  environment(warm: number): Record<string, string> {
    return {
      MARGAY_SANDBOX_DRIVER: 'kubernetes',
      MARGAY_KUBECONFIG: this.kubeconfig(),
      MARGAY_WORKSPACES_NAMESPACE: NAMESPACE,
      MARGAY_INSTALL_ID: INSTALL,
      MARGAY_SANDBOX_IMAGE: 'spec.test/sandbox:1',
      MARGAY_SANDBOX_CLASSES_FILE: this.classes(warm),
      MARGAY_SANDBOX_POOL_SECONDS: '0.2',
      MARGAY_MONGODB_URL: this.store?.url ?? '',
      MARGAY_MONGODB_DATABASE: this.database,
    };
  }

  /** @param bundle the daemon that pods run */
  startKubelet(bundle: string): void {
    const { folder, cluster } = this;
    this.kubelet ??= new FakeKubelet(cluster, { folder, bundle });
    // Pods may have been made before.
    this.kubelet.goOn();
  }

  /** The driver's parts on this cluster and store, none of them running. */
  async context(): Promise<SandboxContext> {
    const { db } = this.mongo?.connection ?? {};
    if (!db) throw new Error('start the fixture first');
    const api = await KubernetesApi.open({ kubeconfigFile: this.kubeconfig() });
    const sandboxes = new SandboxRepository(db.collection('sandboxes'));
    const workspaces = new WorkspaceRepository(db.collection('workspaces'));
    await sandboxes.createIndexes();
    await workspaces.createIndexes();
    const waiting = new WaitingRepository(db.collection('sandboxQueue'));
    await waiting.createIndexes();
    const pod = { install: INSTALL, image: 'spec', pullPolicy: 'Never', pullSecrets: [], trust: 'keys' } as const;
    const classes = readClasses(this.classes(0));
    const place = { namespace: NAMESPACE, tenantsOf: { [OWN_NAMESPACE]: [OWN_TENANT] } };
    const settings = new PoolSettings({ ...place, classes, pod, grantKid: 'k1', tenantMax: 20 });
    const logger = createLogger({ level: 'off' });
    return {
      api,
      pods: api.watchPods(settings.namespaces, selectorOf(INSTALL)),
      sandboxes,
      workspaces,
      waiting,
      settings,
      logger,
    };
  }

  get url(): string {
    return this.address;
  }

  get waiting(): WaitingRepository {
    const { db } = this.mongo?.connection ?? {};
    if (!db) throw new Error('start the fixture first');
    return new WaitingRepository(db.collection('sandboxQueue'));
  }

  collection<T extends Document>(name: string): Collection<T> {
    const { db } = this.mongo?.connection ?? {};
    if (!db) throw new Error('start the fixture first');
    return db.collection<T>(name);
  }

  rows(): Promise<SandboxRow[]> {
    return this.mongo?.connection.db?.collection<SandboxRow>('sandboxes').find().toArray() as Promise<SandboxRow[]>;
  }

  workspaces(): Promise<WorkspaceRow[]> {
    return this.mongo?.connection.db?.collection<WorkspaceRow>('workspaces').find().toArray() as Promise<
      WorkspaceRow[]
    >;
  }

  podsOf(sessionId: string): FakeObject[] {
    return this.cluster.list('pods').filter(({ metadata }) => metadata.labels?.[LABEL.session] === sessionId);
  }

  async until(isTrue: () => boolean | Promise<boolean>): Promise<void> {
    for (const until = performance.now() + WAIT_MS; !(await isTrue());) {
      if (performance.now() > until) throw new Error(`never became true: ${isTrue.toString()}`);
      await delay(10);
    }
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
    await removeTree(this.folder);
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
      maxWorkspace: '2Gi',
      scratch: '1Gi',
      storage: this.storage,
      egress: 'none',
      warm: { min: warm, max: warm },
    };
    // Of these none waits.
    const rare = {
      ...kind,
      maxWorkspace: undefined,
      storage: this.storage === 'volume' ? 'snapshot' : 'volume',
      warm: { min: 0, max: 0 },
    };
    writeFileSync(file, JSON.stringify({ default: kind, dense: rare, strict: rare }));
    return file;
  }
}
