import { spawn, type ChildProcess } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { LABEL } from '../kubernetes-driver/labels';
import type { FakeCluster, FakeObject } from './fake-cluster';

interface ContainerSpec {
  env: { name: string; value?: string }[];
  volumeMounts: { name: string; mountPath: string; subPath?: string }[];
}
interface VolumeSpec {
  name: string;
  persistentVolumeClaim?: { claimName: string };
}

const ADDRESSES = 250;
/** Loopback addresses of this process: other files, and other runs on this machine, have theirs. */
const BLOCK = process.pid % 62_000;
const PREFIX = `127.${1 + Math.floor(BLOCK / 250)}.${BLOCK % 250}`;
const PORT = 7777;

/** For specs: runs the daemon of each pod as a process of this machine, at a loopback address of the pod's own. */
export class FakeKubelet {
  /** Pods stay as this says, instead of being started. */
  waiting: { reason: string; message: string } | undefined;
  /** Where pods start. */
  node = 'node1';
  private count = 0;
  private readonly running = new Map<string, ChildProcess>();

  constructor(
    private readonly cluster: FakeCluster,
    private readonly options: { folder: string; bundle: string },
  ) {
    cluster.onPod = (pod) => this.start(pod);
    cluster.onDelete = (pod, graceSeconds) => this.stop(pod, graceSeconds);
  }

  /** Lets those that had to wait start. */
  goOn(): void {
    this.waiting = undefined;
    for (const pod of this.cluster.list('pods')) if (!this.running.has(pod.metadata.uid)) this.start(pod);
  }

  /** Ends the container; it starts again, as `restartPolicy` says. */
  async restart(pod: FakeObject): Promise<void> {
    const ip = String(pod.status['podIP']);
    await this.kill(pod);
    this.run(pod, ip);
  }

  kill({ metadata: { uid } }: FakeObject): Promise<void> {
    return this.killed(uid);
  }

  private async killed(uid: string): Promise<void> {
    const child = this.running.get(uid);
    this.running.delete(uid);
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    await new Promise((resolve) => child.once('exit', resolve).kill('SIGKILL'));
  }

  async close(): Promise<void> {
    // Also those whose pods are gone from the cluster already.
    await Promise.all([...this.running.keys()].map((uid) => this.killed(uid)));
  }

  private start(pod: FakeObject): void {
    // What is no sandbox never runs.
    if (!pod.metadata.labels?.[LABEL.sandbox]) return;
    if (this.waiting) {
      this.cluster.setStatus(pod, { containerStatuses: [{ state: { waiting: this.waiting } }] });
      return;
    }
    this.count += 1;
    pod.spec['nodeName'] = this.node;
    this.run(pod, `${PREFIX}.${1 + (this.count % ADDRESSES)}`);
  }

  private run(pod: FakeObject, ip: string): void {
    const [container] = pod.spec['containers'] as [ContainerSpec];
    const child = spawn(process.execPath, [this.options.bundle], {
      env: { ...this.environmentOf(pod, container), MARGAY_SANDBOX_LISTEN: `${ip}:${PORT}` },
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    this.running.set(pod.metadata.uid, child);
    const containerStatuses = [{ ready: true, state: { running: {} } }];
    this.cluster.setStatus(pod, { phase: 'Running', podIP: ip, containerStatuses });
  }

  private environmentOf(pod: FakeObject, { env, volumeMounts }: ContainerSpec): Record<string, string> {
    const own = path.join(this.options.folder, pod.metadata.uid);
    const claim = (pod.spec['volumes'] as VolumeSpec[]).find(({ name }) => name === 'workspace')?.persistentVolumeClaim;
    const { subPath = '' } = volumeMounts.find(({ mountPath }) => mountPath === '/workspace') ?? {};
    const workspace = claim ? path.join(this.options.folder, claim.claimName, subPath) : path.join(own, 'workspace');
    const folders = {
      MARGAY_SANDBOX_STATE_DIR: 'state',
      MARGAY_SANDBOX_SPILL_DIR: 'results',
      MARGAY_SANDBOX_ATTACHMENTS_DIR: 'attachments',
      HOME: 'home',
    };
    const places = Object.fromEntries(Object.entries(folders).map(([name, folder]) => [name, path.join(own, folder)]));
    for (const folder of [workspace, ...Object.values(places)]) mkdirSync(folder, { recursive: true });
    const given = env.flatMap(({ name, value }) => (value === undefined ? [] : [[name, value] as const]));
    return {
      ...Object.fromEntries(given),
      ...places,
      MARGAY_SANDBOX_ROOT: workspace,
      MARGAY_SANDBOX_ID: pod.metadata.uid,
      // Its user has other processes here.
      MARGAY_SANDBOX_ISOLATION: 'none',
    };
  }

  private stop(pod: FakeObject, graceSeconds: number): void {
    const child = this.running.get(pod.metadata.uid);
    if (!child || child.exitCode !== null || child.signalCode !== null) return this.cluster.remove(pod);
    const timer = setTimeout(() => child.kill('SIGKILL'), graceSeconds * 1_000);
    child.once('exit', () => {
      clearTimeout(timer);
      this.cluster.remove(pod);
    });
    child.kill('SIGTERM');
  }
}
