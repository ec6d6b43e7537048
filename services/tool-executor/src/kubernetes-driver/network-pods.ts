import { NETWORK_PROBE, type NetworkQuestions } from '@margay/platform';
import type { SandboxClass } from './classes';
import type { Pod } from './kubernetes-api';
import { LABEL, ownLabels, SANDBOX_PORT } from './labels';
import { podOf, type PodSettings } from './pod-spec';

/** On the pods that find out whether network policies are enforced; no sandbox has it. */
export const PROBE_LABEL = 'margay.dev/network-probe';
/** No policy opens it, while tool-executor itself may reach it anywhere, as the API server's. */
export const SHUT_PORT = 6443;

const LIFE_SECONDS = 330;
const GRACE_SECONDS = 1;

export interface ProbePod {
  namespace: string;
  name: string;
  class: SandboxClass;
}

/** Listens where a sandbox does, and where none does. */
export function listenerPod(pod: ProbePod, settings: PodSettings): Pod {
  const listen = `require('net').createServer((socket) => socket.end()).listen(port)`;
  return scriptPod(pod, settings, `for (const port of [${SANDBOX_PORT}, ${SHUT_PORT}]) ${listen};`);
}

/** Looks around like code in a sandbox, and leaves its report as the last words of its container. */
export function lookingPod(pod: ProbePod, settings: PodSettings, questions: NetworkQuestions): Pod {
  return scriptPod(pod, settings, `${NETWORK_PROBE}${LOOK_AGAIN}\nmain(${JSON.stringify(questions)});`);
}

/** Rules may reach a node a moment after the pod. */
const LOOK_AGAIN = `
const main = async (questions) => {
  let report;
  for (let left = 5; left > 0; left -= 1) {
    report = await look(questions);
    if (report.reached.length + report.answered.length === 0) break;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  require('fs').writeFileSync('/dev/termination-log', JSON.stringify(report));
};`;

/** Hardened and placed as a sandbox is, with labels by which policies take it for one. */
function scriptPod({ namespace, name, class: kind }: ProbePod, settings: PodSettings, script: string): Pod {
  const { image: _, ...own } = kind;
  const shape = { ...own, storage: 'snapshot', egress: 'none' } as const;
  const request = { sandboxId: name, namespace, podName: name, className: 'probe', class: shape };
  const { spec, ...pod } = podOf(request, settings);
  const [container] = spec?.containers ?? [];
  const apart = { topologyKey: 'kubernetes.io/hostname', labelSelector: { matchLabels: { [PROBE_LABEL]: 'true' } } };
  const labels = { ...ownLabels(settings.install), [LABEL.egress]: 'none', [PROBE_LABEL]: 'true' };
  return {
    ...pod,
    metadata: { name, namespace, labels },
    spec: {
      ...spec,
      restartPolicy: 'Never',
      activeDeadlineSeconds: LIFE_SECONDS,
      terminationGracePeriodSeconds: GRACE_SECONDS,
      affinity: {
        podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [{ weight: 100, podAffinityTerm: apart }] },
      },
      containers: [
        {
          name: 'probe',
          image: settings.image,
          imagePullPolicy: settings.pullPolicy,
          command: ['node', '-e', script],
          ...(container?.securityContext && { securityContext: container.securityContext }),
          resources: {
            requests: { cpu: '50m', memory: '64Mi', 'ephemeral-storage': '16Mi' },
            limits: { cpu: '500m', memory: '256Mi', 'ephemeral-storage': '64Mi' },
          },
        },
      ],
      volumes: [],
    },
  };
}
