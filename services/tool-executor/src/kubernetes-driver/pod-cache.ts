import type { KubernetesListObject, V1Pod } from '@kubernetes/client-node';

/** The part of the library's informer that is used here. */
export interface Informer {
  on(verb: 'add' | 'update' | 'delete', listener: (pod: V1Pod) => void): void;
  on(verb: 'error' | 'connect', listener: (error?: unknown) => void): void;
  start(): Promise<void>;
  stop(): Promise<void>;
  get(name: string, namespace?: string): V1Pod | undefined;
  list(namespace?: string): readonly V1Pod[];
}

export type PodList = KubernetesListObject<V1Pod>;
export type PodListener = (pod: V1Pod, isDeleted: boolean) => void;

const RESTART_MS = 1_000;
const RESTART_MAX_MS = 30_000;

/** Pods as the informers last saw them. While the API server is away it keeps what it knew, and says so. */
export class PodCache {
  private readonly listeners = new Set<PodListener>();
  private readonly waiting = new Map<string, Set<() => void>>();
  private readonly watches: ReadonlyMap<string, NamespaceWatch>;

  /** @param informers by namespace */
  constructor(informers: ReadonlyMap<string, Informer>) {
    const changed = this.changed.bind(this);
    const watches = [...informers].map(([name, informer]) => [name, new NamespaceWatch(informer, changed)] as const);
    this.watches = new Map(watches);
  }

  /** Why nothing new is learned of one of them at present; undefined while it is of all. */
  get failure(): unknown {
    return [...this.watches.values()].find(({ failure }) => failure !== undefined)?.failure;
  }

  failureIn(namespace: string): unknown {
    return this.watches.get(namespace)?.failure;
  }

  /** Resolves when the first lists have come, or have failed. */
  async start(): Promise<void> {
    await Promise.all([...this.watches.values()].map((watch) => watch.start()));
  }

  async stop(): Promise<void> {
    await Promise.all([...this.watches.values()].map((watch) => watch.stop()));
  }

  get({ namespace, podName }: { namespace: string; podName: string }): V1Pod | undefined {
    return this.watches.get(namespace)?.informer.get(podName, namespace);
  }

  /** Whatever namespace it is in: names of sandboxes are unique. */
  named(podName: string): V1Pod | undefined {
    for (const namespace of this.watches.keys()) {
      const pod = this.get({ namespace, podName });
      if (pod) return pod;
    }
    return undefined;
  }

  list(): readonly V1Pod[] {
    return [...this.watches].flatMap(([namespace, { informer }]) => informer.list(namespace));
  }

  onChange(listener: PodListener): void {
    this.listeners.add(listener);
  }

  /** Resolves at the next change of that pod, or after the time given. */
  async change(name: string, timeoutMs: number): Promise<void> {
    const waiters = this.waiting.get(name) ?? new Set();
    this.waiting.set(name, waiters);
    await new Promise<void>((resolve) => {
      const timer = setTimeout(done, timeoutMs);
      waiters.add(done);
      function done(): void {
        clearTimeout(timer);
        waiters.delete(done);
        resolve();
      }
    });
    if (waiters.size === 0) this.waiting.delete(name);
  }

  private changed(pod: V1Pod, isDeleted: boolean): void {
    for (const wake of [...(this.waiting.get(pod.metadata?.name ?? '') ?? [])]) wake();
    for (const listener of this.listeners) listener(pod, isDeleted);
  }
}

/** One namespace; its informer is started again, later each time, until it has a list. */
class NamespaceWatch {
  private timer?: NodeJS.Timeout;
  private restartMs = RESTART_MS;
  private isStopped = false;
  private error: unknown;

  constructor(
    readonly informer: Informer,
    changed: PodListener,
  ) {
    informer.on('add', (pod) => changed(pod, false));
    informer.on('update', (pod) => changed(pod, false));
    informer.on('delete', (pod) => changed(pod, true));
    informer.on('error', (error) => this.failed(error));
  }

  get failure(): unknown {
    return this.error;
  }

  async start(): Promise<void> {
    this.error = undefined;
    await this.informer.start();
    if (this.error === undefined) this.restartMs = RESTART_MS;
  }

  async stop(): Promise<void> {
    this.isStopped = true;
    clearTimeout(this.timer);
    await this.informer.stop();
  }

  private failed(error: unknown): void {
    this.error = error ?? new Error('the watch ended');
    if (this.isStopped) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.start(), this.restartMs);
    this.timer.unref();
    this.restartMs = Math.min(this.restartMs * 2, RESTART_MAX_MS);
  }
}
