import type { ClusterHarness, Manifest } from './harness';

/** What Pod Security `restricted` demands of a pod, and the hardening of our own pods. */
export const POD_SECURITY = {
  runAsNonRoot: true,
  runAsUser: 1000,
  runAsGroup: 1000,
  fsGroup: 1000,
  seccompProfile: { type: 'RuntimeDefault' },
};
export const CONTAINER_SECURITY = {
  allowPrivilegeEscalation: false,
  readOnlyRootFilesystem: true,
  capabilities: { drop: ['ALL'] },
};

export interface NodePod {
  name: string;
  namespace: string;
  labels?: Record<string, string>;
  /** JavaScript. */
  script: string;
  /** Fields of the container and of the pod's specification beside the usual ones. */
  container?: Record<string, unknown>;
  spec?: Record<string, unknown>;
}

export const podSpec = (cluster: ClusterHarness, { script, container, spec }: Omit<NodePod, 'name' | 'namespace'>) => ({
  automountServiceAccountToken: false,
  enableServiceLinks: false,
  terminationGracePeriodSeconds: 1,
  securityContext: POD_SECURITY,
  containers: [
    {
      name: 'main',
      image: cluster.image('margay'),
      imagePullPolicy: cluster.imagePullPolicy,
      command: ['/usr/bin/node', '-e', script],
      resources: { requests: { cpu: '10m', memory: '32Mi' }, limits: { memory: '256Mi' } },
      securityContext: CONTAINER_SECURITY,
      ...container,
    },
  ],
  ...spec,
});

/** A pod that runs JavaScript on the image of the services. */
export const nodePod = (cluster: ClusterHarness, pod: NodePod): Manifest => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: pod.name, namespace: pod.namespace, labels: pod.labels ?? { app: pod.name } },
  spec: podSpec(cluster, pod),
});

export const READY_ON_HTTP = { readinessProbe: { httpGet: { path: '/', port: 8080 }, periodSeconds: 1 } };

/** Answers every request on port 8080 with the value of an expression. */
export const answering = (expression: string): string =>
  `const server = require('node:http').createServer((request, response) => {
    response.setHeader('connection', 'close');
    response.end(String(${expression}));
  }).listen(8080);
  process.on('SIGTERM', () => setTimeout(() => server.close(() => process.exit(0)), 1500));`;

export const httpPod = (cluster: ClusterHarness, name: string, namespace: string): Manifest =>
  nodePod(cluster, { name, namespace, script: answering(`'hello from ${name}'`), container: READY_ON_HTTP });

/** How the chart marks a pod of a component. */
export const componentLabels = (component: string): Record<string, string> => ({
  'app.kubernetes.io/name': 'margay',
  'app.kubernetes.io/instance': 'margay',
  'app.kubernetes.io/component': component,
});

/** Leads to the pods whose label `app` is its name. */
export const service = (
  name: string,
  namespace: string,
  ports: readonly object[] = [{ port: 80, targetPort: 8080 }],
): Manifest => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name, namespace },
  spec: { selector: { app: name }, ports },
});

/** Prints the body, or `cut` when no answer comes in time. */
export const fetching = (url: string): string =>
  `fetch(${JSON.stringify(url)}, { signal: AbortSignal.timeout(2500) })
    .then((response) => response.text())
    .then((text) => console.log(text), () => console.log('cut'))`;

export const lookingUp = (name: string): string =>
  `require('node:dns').lookup(${JSON.stringify(name)}, (error, address) => console.log(error?.code ?? address))`;
