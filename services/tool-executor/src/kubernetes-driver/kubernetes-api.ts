import type {
  ConfigurationOptions,
  CoreV1Api,
  CoreV1Event,
  KubeConfig,
  RequestContext,
  V1PersistentVolumeClaim,
  V1Pod,
} from '@kubernetes/client-node';
import { PodCache, type Informer } from './pod-cache';
import { isCode, kubernetesError } from './kubernetes-errors';

export type Pod = V1Pod;
export type VolumeClaim = V1PersistentVolumeClaim;
export type ClusterEvent = CoreV1Event;

export interface KubernetesApiOptions {
  /** A kubeconfig; absent: the service account of this pod. */
  kubeconfigFile?: string | undefined;
  namespace: string;
  /** Told of each write that the server took. */
  onWrite?: (verb: 'create' | 'patch' | 'delete', kind: 'pod' | 'volume') => void;
}

/** An object as it was seen; a change demands that it still is that one. */
export interface Seen {
  name: string;
  uid: string;
  resourceVersion?: string | undefined;
}

/** There was nothing to write. */
const NOTHING = Symbol('nothing');

type Library = typeof import('@kubernetes/client-node');

/**
 * Pods and volumes of one namespace. The only file that loads the client library, which costs 0.8 s and 62 MB.
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

  get namespace(): string {
    return this.options.namespace;
  }

  async createPod(body: Pod): Promise<Pod> {
    const { namespace } = this;
    return this.write('create', 'pod', () => this.core.createNamespacedPod({ namespace, body }));
  }

  async findPod(name: string): Promise<Pod | undefined> {
    const { namespace } = this;
    return found(this.core.readNamespacedPod({ namespace, name }));
  }

  async listPods(labelSelector: string): Promise<Pod[]> {
    const { namespace } = this;
    return (await this.core.listNamespacedPod({ namespace, labelSelector }).catch(rethrow)).items;
  }

  /** @throws ABORTED `changed` if it is not what was seen any more */
  async labelPod({ name, uid, resourceVersion }: Seen, labels: Record<string, string>): Promise<Pod> {
    const { namespace } = this;
    const body = { metadata: { uid, resourceVersion, labels } };
    return this.write('patch', 'pod', () => this.core.patchNamespacedPod({ namespace, name, body }, this.merging()));
  }

  /** Nothing happens if there is none of that UID any more. */
  async deletePod({ name, uid }: Seen, gracePeriodSeconds?: number): Promise<void> {
    const { namespace } = this;
    const body = { preconditions: { uid }, ...(gracePeriodSeconds === undefined ? {} : { gracePeriodSeconds }) };
    await this.write('delete', 'pod', () => gone(this.core.deleteNamespacedPod({ namespace, name, body })));
  }

  async createVolume(body: VolumeClaim): Promise<VolumeClaim> {
    const { namespace } = this;
    return this.write('create', 'volume', () => this.core.createNamespacedPersistentVolumeClaim({ namespace, body }));
  }

  async findVolume(name: string): Promise<VolumeClaim | undefined> {
    const { namespace } = this;
    return found(this.core.readNamespacedPersistentVolumeClaim({ namespace, name }));
  }

  async listVolumes(labelSelector: string): Promise<VolumeClaim[]> {
    const { namespace } = this;
    const answer = this.core.listNamespacedPersistentVolumeClaim({ namespace, labelSelector });
    return (await answer.catch(rethrow)).items;
  }

  /** Sets labels and annotations. @throws ABORTED `changed` if it is another one now */
  async markVolume(
    { name, uid }: Seen,
    marks: { labels?: Record<string, string>; annotations?: Record<string, string> },
  ): Promise<void> {
    const { namespace } = this;
    const body = { metadata: { uid, ...marks } };
    const patch = { namespace, name, body };
    await this.write('patch', 'volume', () => this.core.patchNamespacedPersistentVolumeClaim(patch, this.merging()));
  }

  async deleteVolume({ name, uid }: Seen): Promise<void> {
    const { namespace } = this;
    const body = { preconditions: { uid } };
    await this.write('delete', 'volume', () =>
      gone(this.core.deleteNamespacedPersistentVolumeClaim({ namespace, name, body })),
    );
  }

  /** What the cluster tells of a pod, newest last. */
  async eventsOf(uid: string): Promise<ClusterEvent[]> {
    const { namespace } = this;
    const fieldSelector = `involvedObject.uid=${uid}`;
    return (await this.core.listNamespacedEvent({ namespace, fieldSelector }).catch(rethrow)).items;
  }

  /** Pods as they are now and as they change. Not started. */
  watchPods(labelSelector: string): PodCache {
    const path = `/api/v1/namespaces/${this.namespace}/pods`;
    const list = () => this.core.listNamespacedPod({ namespace: this.namespace, labelSelector });
    const informer: Informer = this.library.makeInformer(this.config, path, list, labelSelector);
    return new PodCache(informer, this.namespace);
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
