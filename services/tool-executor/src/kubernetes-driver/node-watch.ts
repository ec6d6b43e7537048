import type { KubernetesObject, V1Node } from '@kubernetes/client-node';

/** The part of the library's informer that is used of nodes. */
export interface NodeInformer {
  on(verb: 'add' | 'update' | 'delete', listener: (node: V1Node) => void): void;
  on(verb: 'error', listener: (error?: unknown) => void): void;
  start(): Promise<void>;
  stop(): Promise<void>;
}

export type NodeListener = (name: string) => void;

const RESTART_MS = 30_000;

/** Which nodes are cordoned, as the informer last saw them. Without the right to see nodes none is. */
export class NodeWatch {
  private readonly cordoned = new Set<string>();
  private readonly listeners = new Set<NodeListener>();
  private timer?: NodeJS.Timeout;
  private isStopped = false;

  constructor(
    private readonly informer: NodeInformer,
    private readonly onFailure: (error: unknown) => void = () => undefined,
  ) {
    informer.on('add', (node) => this.changed(node));
    informer.on('update', (node) => this.changed(node));
    informer.on('delete', (node) => void this.cordoned.delete(nameOf(node)));
    informer.on('error', (error) => this.failed(error));
  }

  start(): Promise<void> {
    return this.informer.start();
  }

  async stop(): Promise<void> {
    this.isStopped = true;
    clearTimeout(this.timer);
    await this.informer.stop();
  }

  isCordoned(name: string | undefined): boolean {
    return name !== undefined && this.cordoned.has(name);
  }

  /** Told of each node that no pods are to come to any more. */
  onCordon(listener: NodeListener): void {
    this.listeners.add(listener);
  }

  private changed(node: V1Node): void {
    const name = nameOf(node);
    if (node.spec?.unschedulable !== true) return void this.cordoned.delete(name);
    if (this.cordoned.has(name)) return;
    this.cordoned.add(name);
    for (const listener of this.listeners) listener(name);
  }

  private failed(error: unknown): void {
    if (this.isStopped) return;
    this.onFailure(error);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.start(), RESTART_MS);
    this.timer.unref();
  }
}

const nameOf = ({ metadata }: KubernetesObject): string => metadata?.name ?? '';
