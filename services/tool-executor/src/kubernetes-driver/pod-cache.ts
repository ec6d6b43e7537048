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

/** Pods as the informer last saw them. While the API server is away it keeps what it knew, and says so. */
export class PodCache {
  private readonly listeners = new Set<PodListener>();
  private readonly waiting = new Map<string, Set<() => void>>();
  private timer?: NodeJS.Timeout;
  private restartMs = RESTART_MS;
  private isStopped = false;
  private error: unknown;

  constructor(
    private readonly informer: Informer,
    private readonly namespace: string,
  ) {
    informer.on('add', (pod) => this.changed(pod, false));
    informer.on('update', (pod) => this.changed(pod, false));
    informer.on('delete', (pod) => this.changed(pod, true));
    informer.on('error', (error) => this.failed(error));
  }

  /** Why nothing new is learned at present; undefined while it is. */
  get failure(): unknown {
    return this.error;
  }

  /** Resolves when the first list has come, or has failed. */
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

  get(name: string): V1Pod | undefined {
    return this.informer.get(name, this.namespace);
  }

  list(): readonly V1Pod[] {
    return this.informer.list(this.namespace);
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

  private failed(error: unknown): void {
    this.error = error ?? new Error('the watch ended');
    if (this.isStopped) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.start(), this.restartMs);
    this.timer.unref();
    this.restartMs = Math.min(this.restartMs * 2, RESTART_MAX_MS);
  }
}
