import { GRPC_PORT, MANAGEMENT_PORT, type ExecutorPods } from './executor-pods';
import type { ClusterHarness, Manifest } from './harness';
import { componentLabels, CONTAINER_SECURITY, POD_SECURITY } from './pods';

export const PROXY_PORT = 3128;

export interface EgressPod {
  /** As `MARGAY_EGRESS_POLICY_FILE` holds it. */
  policy: object;
  environment?: Record<string, string>;
  /** The secret of an authority, mounted at /margay/authority. */
  authoritySecret?: string;
  /** Fields of the pod's specification beside the usual ones. */
  spec?: Record<string, unknown>;
}

/** The proxy in a pod beside a tool-executor of the name `one`, and its policy. */
export function egressPod(cluster: ClusterHarness, { home: namespace }: ExecutorPods, options: EgressPod): Manifest[] {
  const { policy, environment, authoritySecret, spec } = options;
  const env = {
    MARGAY_MANAGEMENT_LISTEN: `0.0.0.0:${MANAGEMENT_PORT}`,
    MARGAY_KEYS_DIR: '/margay/keys',
    MARGAY_EGRESS_LISTEN: `0.0.0.0:${PROXY_PORT}`,
    MARGAY_EGRESS_POLICY_FILE: '/margay/policy/policy.json',
    MARGAY_TOOL_EXECUTOR_URL: `one:${GRPC_PORT}`,
    ...environment,
  };
  const volumes = [
    { name: 'keys', secret: { secretName: 'keys' } },
    { name: 'policy', configMap: { name: 'policy' } },
    ...(authoritySecret === undefined ? [] : [{ name: 'authority', secret: { secretName: authoritySecret } }]),
  ];
  const container = {
    name: 'egress',
    image: cluster.image('margay'),
    imagePullPolicy: cluster.imagePullPolicy,
    args: ['--services', 'egress'],
    env: Object.entries(env).map(([name, value]) => ({ name, value })),
    readinessProbe: { httpGet: { path: '/readyz', port: MANAGEMENT_PORT }, periodSeconds: 1 },
    securityContext: CONTAINER_SECURITY,
    volumeMounts: volumes.map(({ name }) => ({ name, mountPath: `/margay/${name}`, readOnly: true })),
  };
  return [
    {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: 'policy', namespace },
      data: { 'policy.json': JSON.stringify(policy) },
    },
    {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'egress', namespace, labels: { app: 'egress', ...componentLabels('egress') } },
      spec: {
        automountServiceAccountToken: false,
        enableServiceLinks: false,
        securityContext: POD_SECURITY,
        containers: [container],
        volumes,
        ...spec,
      },
    },
  ];
}
