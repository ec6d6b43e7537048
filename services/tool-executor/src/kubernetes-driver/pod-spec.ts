import type { Pod, VolumeClaim } from './kubernetes-api';
import { bytesOf, type SandboxClass } from './classes';
import { ownImageParts } from './own-image';
import { PROXY_NAME, type ProxyAddress } from './proxy-address';
import { boundLabels, LABEL, ownLabels, SANDBOX_PORT } from './labels';

export interface PodSettings {
  install: string;
  image: string;
  pullPolicy: 'Always' | 'IfNotPresent' | 'Never';
  pullSecrets: readonly string[];
  /** Public keys that sandboxes accept grants of. */
  trust: string;
  /** Of the egress proxy; absent: sandboxes reach nothing outside. */
  proxy?: ProxyAddress;
  proxyTokenOf?: (sandboxId: string) => string;
  /** Certificate of the authority by which the proxy reads requests, PEM. */
  authority?: string;
}

export interface PodRequest {
  sandboxId: string;
  namespace: string;
  podName: string;
  className: string;
  class: SandboxClass;
  /** Absent: its files are a folder of the pod. */
  volumeName?: string | undefined;
  /** Of a worktree: the folder of the volume that is its workspace. */
  subPath?: string | undefined;
  /** Absent: it waits for a session. */
  bound?: { tenantId: string; sessionId: string; workspaceId: string } | undefined;
}

const USER = 1000;
const GRACE_SECONDS = 90;
const DRAIN_MS = 60_000;
/** Together they fit into the grace. */
const LAST_ARCHIVE_MS = 25_000;
const STARTUP_TRIES = 120;
/** The daemon ends what makes more; the kubelet's limit, which also stops the daemon, should lie above. */
const PROCESSES = 512;
/** 16 of a call, beside the daemon and the first process. */
const STRICT_PROCESSES = 18;
/** The journal takes 256 MiB at most, twice that while it is rewritten. */
const STATE_SIZE = '600Mi';
/** What a session may have attached, and room for a file that comes anew. */
const ATTACHMENTS_SIZE = '256Mi';
const PATHS = {
  root: '/workspace',
  state: '/margay/run',
  results: '/margay/results',
  attachments: '/margay/attachments',
  home: '/home/agent',
  tmp: '/tmp',
};

/** The pod of a sandbox, with everything that cluster §1.6 asks of it; fits Pod Security `restricted`. */
export function podOf(request: PodRequest, settings: PodSettings): Pod {
  const { class: kind, namespace, podName } = request;
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: podName, namespace, labels: labelsOf(request, settings) },
    spec: {
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      restartPolicy: 'Always',
      terminationGracePeriodSeconds: GRACE_SECONDS,
      dnsPolicy: 'None',
      dnsConfig: { nameservers: ['127.0.0.1'] },
      ...(hasProxy(request, settings) && settings.proxy
        ? { hostAliases: [{ ip: settings.proxy.ip, hostnames: [PROXY_NAME] }] }
        : {}),
      securityContext: {
        runAsNonRoot: true,
        runAsUser: USER,
        runAsGroup: USER,
        fsGroup: USER,
        fsGroupChangePolicy: 'OnRootMismatch',
        seccompProfile: { type: 'RuntimeDefault' },
      },
      ...(kind.hostUsers === undefined ? {} : { hostUsers: kind.hostUsers }),
      ...(kind.runtimeClassName === undefined ? {} : { runtimeClassName: kind.runtimeClassName }),
      ...(kind.nodeSelector === undefined ? {} : { nodeSelector: kind.nodeSelector }),
      ...(kind.tolerations === undefined ? {} : { tolerations: kind.tolerations }),
      ...affinityOf(request),
      imagePullSecrets: settings.pullSecrets.map((name) => ({ name })),
      ...initContainersOf(request, settings),
      containers: [containerOf(request, settings)],
      volumes: volumesOf(request, settings),
    },
  };
}

/** The volume of a workspace. It carries the workspace's label, never a session's. */
export function volumeClaimOf(request: PodRequest, install: string): VolumeClaim {
  const { class: kind, className, bound, sandboxId } = request;
  const workspace: Record<string, string> = bound ? { [LABEL.workspace]: bound.workspaceId } : {};
  return {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: {
      name: request.podName,
      namespace: request.namespace,
      labels: { ...ownLabels(install), [LABEL.class]: className, [LABEL.sandbox]: sandboxId, ...workspace },
    },
    spec: {
      accessModes: [kind.accessMode],
      resources: { requests: { storage: kind.workspace } },
      ...(kind.storageClass === undefined ? {} : { storageClassName: kind.storageClass }),
    },
  };
}

function labelsOf({ sandboxId, className, class: kind, bound }: PodRequest, { install }: PodSettings) {
  return {
    ...ownLabels(install),
    [LABEL.class]: className,
    [LABEL.sandbox]: sandboxId,
    [LABEL.egress]: kind.egress,
    ...(bound ? boundLabels(bound) : {}),
  };
}

/** All pods of a volume that one node at a time can mount go to the same node; the first one finds itself. */
function affinityOf({ class: kind, volumeName, bound }: PodRequest) {
  if (volumeName === undefined || !bound || kind.accessMode !== 'ReadWriteOnce') return {};
  const term = {
    topologyKey: 'kubernetes.io/hostname',
    labelSelector: { matchLabels: { [LABEL.workspace]: bound.workspaceId } },
  };
  return { affinity: { podAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [term] } } };
}

const CONTAINER_SECURITY = {
  allowPrivilegeEscalation: false,
  readOnlyRootFilesystem: true,
  runAsNonRoot: true,
  capabilities: { drop: ['ALL'] },
  seccompProfile: { type: 'RuntimeDefault' },
};

/** An image that is not ours is given what a sandbox needs, by ours, under the same restrictions. */
function initContainersOf(request: PodRequest, settings: PodSettings) {
  const own = ownImageParts(request.class, settings.image);
  if (!own) return {};
  const { image, pullPolicy: imagePullPolicy } = settings;
  const resources = resourcesOf(request, settings);
  return { initContainers: [{ ...own.init, image, imagePullPolicy, resources, securityContext: CONTAINER_SECURITY }] };
}

function resourcesOf({ class: kind, volumeName }: PodRequest, settings: PodSettings) {
  const scratch = { 'ephemeral-storage': ephemeralOf(kind, volumeName !== undefined, settings) };
  return {
    requests: { cpu: kind.cpu.request, memory: kind.memory.request, 'ephemeral-storage': '256Mi' },
    limits: { cpu: kind.cpu.limit, memory: kind.memory.limit, ...scratch },
  };
}

function containerOf(request: PodRequest, settings: PodSettings) {
  const { class: kind } = request;
  const own = ownImageParts(kind, settings.image);
  const door = { tcpSocket: { port: SANDBOX_PORT }, timeoutSeconds: 2 };
  return {
    name: 'sandbox',
    image: kind.image ?? settings.image,
    ...(own ? { command: own.command } : {}),
    imagePullPolicy: settings.pullPolicy,
    env: environmentOf(request, settings),
    ports: [{ containerPort: SANDBOX_PORT, protocol: 'TCP', name: 'sandboxd' }],
    resources: resourcesOf(request, settings),
    securityContext: CONTAINER_SECURITY,
    startupProbe: { ...door, periodSeconds: 1, failureThreshold: STARTUP_TRIES },
    readinessProbe: { ...door, periodSeconds: 5 },
    livenessProbe: { ...door, periodSeconds: 10, failureThreshold: 6 },
    volumeMounts: [
      ...workspaceMounts(request),
      { name: 'state', mountPath: PATHS.state },
      { name: 'results', mountPath: PATHS.results },
      { name: 'attachments', mountPath: PATHS.attachments },
      { name: 'home', mountPath: PATHS.home },
      { name: 'tmp', mountPath: PATHS.tmp },
      ...(own ? [own.mount] : []),
    ],
  };
}

/** A worktree looks for its repository three folders up, which is the root. */
function workspaceMounts({ subPath }: PodRequest) {
  if (subPath === undefined) return [{ name: 'workspace', mountPath: PATHS.root }];
  return [
    { name: 'workspace', mountPath: PATHS.root, subPath },
    { name: 'workspace', mountPath: '/.git', subPath: '.git' },
  ];
}

/** Its whole environment; it holds public keys and the pod's own UID, nothing secret. */
function environmentOf(request: PodRequest, settings: PodSettings) {
  const { class: kind, className, sandboxId } = request;
  const isStrict = className === 'strict';
  const { trust, proxy, proxyTokenOf, authority } = settings;
  const values: Record<string, string> = {
    MARGAY_SANDBOX_LISTEN: `0.0.0.0:${SANDBOX_PORT}`,
    MARGAY_SANDBOX_TRUST: trust,
    MARGAY_SANDBOX_STATE_DIR: `${PATHS.state}/journal`,
    MARGAY_SANDBOX_ROOT: PATHS.root,
    MARGAY_SANDBOX_ALLOWED_ROOTS: JSON.stringify(['/margay/plan', '/margay/attachments', '/tmp/margay']),
    MARGAY_SANDBOX_SPILL_DIR: PATHS.results,
    MARGAY_SANDBOX_ATTACHMENTS_DIR: PATHS.attachments,
    MARGAY_SANDBOX_ISOLATION: 'pod',
    MARGAY_SANDBOX_IDLE_EXIT_MS: '0',
    MARGAY_SANDBOX_DRAIN_MS: String(DRAIN_MS),
    ...(request.volumeName === undefined ? { MARGAY_SANDBOX_LAST_ARCHIVE_MS: String(LAST_ARCHIVE_MS) } : {}),
    MARGAY_SANDBOX_MEMORY_BYTES: String(bytesOf(kind.memory.limit)),
    // With users of the node one counter would serve all its pods; there the daemon and the kubelet count.
    MARGAY_SANDBOX_PROCESSES: String(kind.hostUsers === false ? PROCESSES : 0),
    MARGAY_SANDBOX_POD_PROCESSES: String(isStrict ? STRICT_PROCESSES : PROCESSES),
    ...(isStrict ? { MARGAY_SANDBOX_PROFILE: 'strict' } : {}),
    // A volume tells its size itself; this is for those that share a disk.
    MARGAY_SANDBOX_WORKSPACE_BYTES: String(bytesOf(mostOf(request))),
    ...(proxy && hasProxy(request, settings)
      ? { MARGAY_SANDBOX_PROXY_URL: `http://${sandboxId}:${proxyTokenOf?.(sandboxId)}@${PROXY_NAME}:${proxy.port}` }
      : {}),
    ...(authority !== undefined && hasProxy(request, settings) ? { MARGAY_SANDBOX_CA: authority } : {}),
    HOME: PATHS.home,
    LANG: 'C.UTF-8',
    TZ: 'UTC',
    NODE_OPTIONS: '--max-semi-space-size=2 --max-old-space-size=192',
    ...ownImageParts(kind, settings.image)?.environment,
  };
  const fixed = Object.entries(values).map(([name, value]) => ({ name, value }));
  return [{ name: 'MARGAY_SANDBOX_ID', valueFrom: { fieldRef: { fieldPath: 'metadata.uid' } } }, ...fixed];
}

/** What its workspace may ever take. */
function mostOf({ class: kind, volumeName }: PodRequest): string {
  return volumeName === undefined ? kind.workspace : (kind.maxWorkspace ?? kind.workspace);
}

/** A class may have no way out at all. */
function hasProxy({ class: kind }: PodRequest, { proxy }: PodSettings): boolean {
  return proxy !== undefined && kind.egress === 'proxy';
}

function volumesOf({ class: kind, volumeName }: PodRequest, { image }: PodSettings) {
  const own = ownImageParts(kind, image);
  const folder = (name: string, sizeLimit: string) => ({ name, emptyDir: { sizeLimit } });
  return [
    volumeName === undefined
      ? folder('workspace', kind.workspace)
      : { name: 'workspace', persistentVolumeClaim: { claimName: volumeName } },
    folder('state', STATE_SIZE),
    folder('results', kind.scratch),
    folder('attachments', ATTACHMENTS_SIZE),
    folder('home', kind.scratch),
    folder('tmp', kind.scratch),
    ...(own ? [own.volume] : []),
  ];
}

/** The node's disk: results, home and temporary files share what one of them may take, beside all else. */
function ephemeralOf(kind: SandboxClass, hasVolume: boolean, { image }: PodSettings): string {
  const program = bytesOf(ownImageParts(kind, image)?.size ?? '0');
  const always = bytesOf(kind.scratch) + bytesOf(STATE_SIZE) + bytesOf(ATTACHMENTS_SIZE) + program;
  const bytes = always + (hasVolume ? 0 : bytesOf(kind.workspace));
  return `${Math.ceil(bytes / bytesOf('1Mi'))}Mi`;
}
