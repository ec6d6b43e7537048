import type {
  ConfigurationOptions,
  CoreV1Api,
  CoreV1Event,
  KubeConfig,
  RequestContext,
  V1PersistentVolumeClaim,
  V1Pod,
} from '@kubernetes/client-node';
import { NodeWatch } from './node-watch';
import { PodCache, type Informer } from './pod-cache';
import { isCode, kubernetesError } from './kubernetes-errors';

export type Pod = V1Pod;
export type VolumeClaim = V1PersistentVolumeClaim;
export type ClusterEvent = CoreV1Event;

export interface KubernetesApiOptions {
  /** A kubeconfig; absent: the service account of this pod. */
  kubeconfigFile?: string | undefined;
  /** Told of each write that the server took. */
  onWrite?: (verb: 'create' | 'patch' | 'delete', kind: 'pod' | 'volume') => void;
}

export interface Named {
  namespace: string;
  name: string;
}

/** An object as it was seen; a change demands that it still is that one. */
export interface Seen extends Named {
  uid: string;
  resourceVersion?: string | undefined;
}

/** There was nothing to write. */
const NOTHING = Symbol('nothing');

type Library = typeof import('@kubernetes/client-node');

/**
 * Pods and volumes of the namespaces that are ours. The only file that loads the client library, which costs 0.8 s and 62 MB.
 * Errors are those of `kubernetesError`.
 */
export class KubernetesApi {
  private constructor(
    private readonly core: CoreV1Api,
    private readonly config: KubeConfig,
    private readonly library: Library,
    private readonly options: KubernetesApiOptions,
  ) {}

  static async open(options: KubernetesApiOptions): Promise<KubernetesApi> {
    const library = await import('@kubernetes/client-node');
    const config = pooledConfig(library);
    if (options.kubeconfigFile === undefined) config.loadFromCluster();
    else config.loadFromFile(options.kubeconfigFile);
    return new KubernetesApi(config.makeApiClient(library.CoreV1Api), config, library, options);
  }

  /** In the namespace that it names. */
  async createPod(body: Pod): Promise<Pod> {
    const namespace = namespaceOf(body);
    return this.write('create', 'pod', () => this.core.createNamespacedPod({ namespace, body }));
  }

  async findPod({ namespace, name }: Named): Promise<Pod | undefined> {
    return found(this.core.readNamespacedPod({ namespace, name }));
  }

  async listPods(namespace: string, labelSelector: string): Promise<Pod[]> {
    return (await this.core.listNamespacedPod({ namespace, labelSelector }).catch(rethrow)).items;
  }

  /** @throws ABORTED `changed` if it is not what was seen any more */
  async labelPod({ namespace, name, uid, resourceVersion }: Seen, labels: Record<string, string>): Promise<Pod> {
    const body = { metadata: { uid, resourceVersion, labels } };
    return this.write('patch', 'pod', () => this.core.patchNamespacedPod({ namespace, name, body }, this.merging()));
  }

  /** Nothing happens if there is none of that UID any more. */
  async deletePod({ namespace, name, uid }: Seen, gracePeriodSeconds?: number): Promise<void> {
    const body = { preconditions: { uid }, ...(gracePeriodSeconds === undefined ? {} : { gracePeriodSeconds }) };
    await this.write('delete', 'pod', () => gone(this.core.deleteNamespacedPod({ namespace, name, body })));
  }

  /** In the namespace that it names. */
  async createVolume(body: VolumeClaim): Promise<VolumeClaim> {
    const namespace = namespaceOf(body);
    return this.write('create', 'volume', () => this.core.createNamespacedPersistentVolumeClaim({ namespace, body }));
  }

  async findVolume({ namespace, name }: Named): Promise<VolumeClaim | undefined> {
    return found(this.core.readNamespacedPersistentVolumeClaim({ namespace, name }));
  }

  async listVolumes(namespace: string, labelSelector: string): Promise<VolumeClaim[]> {
    const answer = this.core.listNamespacedPersistentVolumeClaim({ namespace, labelSelector });
    return (await answer.catch(rethrow)).items;
  }

  /** Sets labels and annotations. @throws ABORTED `changed` if it is another one now */
  async markVolume(
    { namespace, name, uid }: Seen,
    marks: { labels?: Record<string, string>; annotations?: Record<string, string> },
  ): Promise<void> {
    const body = { metadata: { uid, ...marks } };
    const patch = { namespace, name, body };
    await this.write('patch', 'volume', () => this.core.patchNamespacedPersistentVolumeClaim(patch, this.merging()));
  }

  /** @throws ABORTED `changed` if it is not what was seen any more */
  async growVolume({ namespace, name, uid, resourceVersion }: Seen, storage: string): Promise<void> {
    const body = { metadata: { uid, resourceVersion }, spec: { resources: { requests: { storage } } } };
    const patch = { namespace, name, body };
    await this.write('patch', 'volume', () => this.core.patchNamespacedPersistentVolumeClaim(patch, this.merging()));
  }

  async deleteVolume({ namespace, name, uid }: Seen): Promise<void> {
    const body = { preconditions: { uid } };
    await this.write('delete', 'volume', () =>
      gone(this.core.deleteNamespacedPersistentVolumeClaim({ namespace, name, body })),
    );
  }

  /** What the cluster tells of a pod, newest last. */
  async eventsOf(namespace: string, uid: string): Promise<ClusterEvent[]> {
    const fieldSelector = `involvedObject.uid=${uid}`;
    return (await this.core.listNamespacedEvent({ namespace, fieldSelector }).catch(rethrow)).items;
  }

  /** Pods as they are now and as they change. Not started. */
  watchPods(namespaces: readonly string[], labelSelector: string): PodCache {
    const informerOf = (namespace: string): Informer => {
      const list = () => this.core.listNamespacedPod({ namespace, labelSelector });
      return this.library.makeInformer(this.config, `/api/v1/namespaces/${namespace}/pods`, list, labelSelector);
    };
    return new PodCache(new Map(namespaces.map((namespace) => [namespace, informerOf(namespace)])));
  }

  /** Nodes as they are now and as they change; needs rights of its own. Not started. */
  watchNodes(onFailure: (error: unknown) => void): NodeWatch {
    const informer = this.library.makeInformer(this.config, '/api/v1/nodes', () => this.core.listNode());
    return new NodeWatch(informer, onFailure);
  }

  private async write<T>(
    verb: 'create' | 'patch' | 'delete',
    kind: 'pod' | 'volume',
    send: () => Promise<T>,
  ): Promise<T> {
    const answer = await send().catch(rethrow);
    if (answer !== NOTHING) this.options.onWrite?.(verb, kind);
    return answer;
  }

  private merging(): ConfigurationOptions {
    return this.library.setHeaderOptions('Content-Type', this.library.PatchStrategy.MergePatch);
  }
}

function namespaceOf({ metadata }: Pod | VolumeClaim): string {
  if (metadata?.namespace === undefined) throw new Error('an object is made in a namespace');
  return metadata.namespace;
}

/** The library would open a connection, with all of TLS, for every request. */
function pooledConfig({ KubeConfig: Config }: Library): KubeConfig {
  class PooledConfig extends Config {
    private shared?: ReturnType<RequestContext['getDispatcher']>;

    override async applySecurityAuthentication(context: RequestContext): Promise<void> {
      await super.applySecurityAuthentication(context);
      this.shared ??= context.getDispatcher();
      if (this.shared) context.setDispatcher(this.shared);
    }
  }
  return new PooledConfig();
}

async function found<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (isCode(error, 404)) return undefined;
    throw kubernetesError(error);
  }
}

/** 409 is another UID: what was meant is gone, too. */
async function gone(asked: Promise<unknown>): Promise<unknown> {
  try {
    return await asked;
  } catch (error) {
    if (!isCode(error, 404) && !isCode(error, 409)) throw error;
    return NOTHING;
  }
}

function rethrow(error: unknown): never {
  throw kubernetesError(error);
}
