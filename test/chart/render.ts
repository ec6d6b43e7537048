import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse, parseAllDocuments } from 'yaml';

export const CHART = join(__dirname, '../../charts/margay');
const HELM = JSON.parse(process.env.MARGAY_TEST_HELM ?? '["helm"]') as [string, ...string[]];

/** The parts of an object that tests look at; the rest is looked at as it is. */
export interface KubernetesObject {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace?: string; labels: Record<string, string>; annotations?: Record<string, string> };
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- any shape of any kind
  [field: string]: any;
}

export interface RenderOptions {
  release?: string;
  namespace?: string;
  /** API versions that the cluster has besides its own. */
  apis?: string[];
}

/** What every installation needs: bundled servers. */
export const EVALUATION = { mongodb: { enabled: true }, nats: { enabled: true } };

/** Servers of one's own, and whatever networks they need. */
export const EXTERNAL = {
  mongodb: { external: { existingSecret: 'mongodb-url' } },
  nats: { external: { existingSecret: 'nats-url' } },
  networkPolicy: {
    mongodbTo: [{ ipBlock: { cidr: '203.0.113.0/28' } }],
    natsTo: [{ ipBlock: { cidr: '203.0.113.16/28' } }],
  },
};

/** The objects that these values give; hooks and tests included. Throws what helm says. */
export function render(values: object = EVALUATION, options: RenderOptions = {}): KubernetesObject[] {
  const { release = 'margay', namespace = 'agents', apis = [] } = options;
  const flags = ['--namespace', namespace, ...apis.flatMap((api) => ['--api-versions', api])];
  const text = helm(['template', release, CHART, ...flags, '--values', '-'], JSON.stringify(values));
  const documents = parseAllDocuments(text, { uniqueKeys: true });
  for (const { errors } of documents) if (errors[0]) throw errors[0];
  return documents.map((document) => document.toJSON() as KubernetesObject | null).filter((object) => object !== null);
}

/** What `helm install` would tell the user. */
export function notes(values: object = EVALUATION): string {
  const arguments_ = ['install', 'margay', CHART, '--namespace', 'agents', '--dry-run=client', '--values', '-'];
  const text = helm(arguments_, JSON.stringify(values));
  return text.slice(text.indexOf('NOTES:'));
}

/** What helm says against these values. */
export function refusal(values: object): string {
  try {
    render(values);
  } catch (error) {
    return (error as Error).message;
  }
  throw new Error('the values were accepted');
}

const answers = new Map<string, string>();

/** Standard output of a call; the same call is made once. */
function helm(args: string[], input: string): string {
  const call = JSON.stringify([args, input]);
  const known = answers.get(call);
  if (known !== undefined) return known;
  const [program, ...first] = HELM;
  const { status, stdout, stderr, error } = spawnSync(program, [...first, ...args], {
    input,
    encoding: 'utf8',
    maxBuffer: 64e6,
  });
  if (error) throw error;
  if (status !== 0) throw new Error(stderr);
  answers.set(call, stdout);
  return stdout;
}

export const readChartFile = (name: string): string => readFileSync(join(CHART, name), 'utf8');
export const readChartYaml = (name: string): unknown => parse(readChartFile(name));

export const ofKind = (objects: KubernetesObject[], kind: string): KubernetesObject[] =>
  objects.filter((object) => object.kind === kind);

/** The one object of that kind and name; throws when there is none. */
export function find(objects: KubernetesObject[], kind: string, name: string): KubernetesObject {
  const found = objects.find((object) => object.kind === kind && object.metadata.name === name);
  if (found) return found;
  const there = ofKind(objects, kind).map((object) => object.metadata.name);
  throw new Error(`there is no ${kind} ${name}, only ${there.join(', ') || 'none'}`);
}

/** A pod, or the pod template of a workload. */
export interface PodLike {
  owner: KubernetesObject;
  labels: Record<string, string>;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- as above
  spec: any;
}

/** All pods that these objects make. */
export function podsOf(objects: KubernetesObject[]): PodLike[] {
  return objects.flatMap((owner): PodLike[] => {
    if (owner.kind === 'Pod') return [{ owner, labels: owner.metadata.labels, spec: owner.spec }];
    const template = owner.spec?.template ?? owner.spec?.jobTemplate?.spec.template;
    return template?.spec ? [{ owner, labels: template.metadata.labels, spec: template.spec }] : [];
  });
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- as above
export const containersOf = (pod: PodLike): any[] => [...(pod.spec.initContainers ?? []), ...pod.spec.containers];

/** Variables of a pod's first container. */
export function environmentOf(object: KubernetesObject): Record<string, string | object> {
  const variables: { name: string; value?: string; valueFrom?: object }[] = object.spec.template.spec.containers[0].env;
  return Object.fromEntries(variables.map(({ name, value, valueFrom }) => [name, value ?? valueFrom ?? '']));
}
