import { PermissionDeniedError, UnavailableError } from '@margay/errors';
import type { CoreV1Api } from '@kubernetes/client-node';
import { ConflictError, SecretStore, type StoredSecret } from './secret-store';
import type { SecretData } from './secrets';

export interface KubernetesSecretsOptions {
  namespace: string;
  /** Name of the release, a label of what is made. */
  instance: string;
}

/** Secrets of a namespace, with the rights of the pod's service account. */
export class KubernetesSecrets extends SecretStore {
  private constructor(
    private readonly api: CoreV1Api,
    private readonly asMerge: Parameters<CoreV1Api['patchNamespacedSecret']>[1],
    private readonly options: KubernetesSecretsOptions,
  ) {
    super();
  }

  /** In a pod as its service account, elsewhere as KUBECONFIG says. */
  static async open(options: KubernetesSecretsOptions): Promise<KubernetesSecrets> {
    // Loaded here only: the client is large.
    const { CoreV1Api, KubeConfig, PatchStrategy, setHeaderOptions } = await import('@kubernetes/client-node');
    const config = new KubeConfig();
    config.loadFromDefault();
    const asMerge = setHeaderOptions('Content-Type', PatchStrategy.MergePatch);
    return new KubernetesSecrets(config.makeApiClient(CoreV1Api), asMerge, options);
  }

  async find(name: string): Promise<StoredSecret | undefined> {
    try {
      const { data = {}, metadata } = await this.api.readNamespacedSecret({ name, namespace: this.options.namespace });
      return { data: mapValues(data, decoded), version: metadata?.resourceVersion ?? '' };
    } catch (error) {
      if (codeOf(error) === 404) return undefined;
      throw translated(error, name);
    }
  }

  async create(name: string, data: SecretData): Promise<void> {
    const { namespace, instance } = this.options;
    const labels = {
      'app.kubernetes.io/name': 'margay',
      'app.kubernetes.io/instance': instance,
      'app.kubernetes.io/managed-by': 'margay',
    };
    const body = { metadata: { name, labels }, type: 'Opaque', data: mapValues(data, encoded) };
    await this.api.createNamespacedSecret({ namespace, body }).catch((error: unknown) => {
      throw translated(error, name);
    });
  }

  async patch(name: string, data: SecretData, version: string): Promise<void> {
    const body = { metadata: { resourceVersion: version }, data: mapValues(data, encoded) };
    await this.api
      .patchNamespacedSecret({ name, namespace: this.options.namespace, body }, this.asMerge)
      .catch((error: unknown) => {
        throw translated(error, name);
      });
  }
}

const encoded = (text: string) => Buffer.from(text).toString('base64');
const decoded = (base64: string) => Buffer.from(base64, 'base64').toString();

function mapValues(data: SecretData, change: (value: string) => string): Record<string, string> {
  return Object.fromEntries(Object.entries(data).map(([key, value]) => [key, change(value)]));
}

/** Of an answer of the API server; undefined where there was none. */
function codeOf(error: unknown): number | undefined {
  const code: unknown = error instanceof Error && 'code' in error ? error.code : undefined;
  return typeof code === 'number' ? code : undefined;
}

/** The answer of the API server is not quoted: it may hold what was sent. */
function translated(error: unknown, name: string): Error {
  const code = codeOf(error);
  if (code === 409) return new ConflictError(name);
  if (code === 401 || code === 403)
    return new PermissionDeniedError('secret_forbidden', `This service account may not write the secret ${name}; check its role.`); // prettier-ignore
  const why = code === undefined ? 'was not reached' : `answered ${code}`;
  return new UnavailableError('kubernetes_unavailable', `The API server ${why} for the secret ${name}; try again.`, {
    ...(code === undefined && { cause: error }),
  });
}
