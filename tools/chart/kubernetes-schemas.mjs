// Makes tools/chart/schemas/*.json: of the OpenAPI documents of Kubernetes and of the custom resources that the chart uses,
// the parts that its objects need. Run by hand when a Kubernetes version is added:
//
//   go mod download k8s.io/kubernetes@v1.36.3     (and the modules below; Go's module proxy is enough)
//   node tools/chart/kubernetes-schemas.mjs FOLDER-OF-THE-MODULE-CACHE
//
// Kubernetes, KEDA, the Prometheus operator, cert-manager and the Gateway API are under the Apache License 2.0.
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';

const out = fileURLToPath(new URL('schemas', import.meta.url));

/** Oldest and newest supported minor. */
const KUBERNETES = { '1.30': 'v1.30.14', 1.36: 'v1.36.3' };

const KINDS = {
  v1: [
    'ConfigMap',
    'LimitRange',
    'Namespace',
    'PersistentVolumeClaim',
    'Pod',
    'ResourceQuota',
    'Secret',
    'Service',
    'ServiceAccount',
  ],
  'apps/v1': ['Deployment', 'StatefulSet'],
  'autoscaling/v2': ['HorizontalPodAutoscaler'],
  'batch/v1': ['Job', 'CronJob'],
  'networking.k8s.io/v1': ['Ingress', 'NetworkPolicy'],
  'policy/v1': ['PodDisruptionBudget'],
  'rbac.authorization.k8s.io/v1': ['ClusterRole', 'ClusterRoleBinding', 'Role', 'RoleBinding'],
};

/** Kind → file of its definition in the module cache. */
const CUSTOM = {
  ScaledObject: 'github.com/kedacore/keda/v2@v2.17.2/config/crd/bases/keda.sh_scaledobjects.yaml',
  ServiceMonitor:
    'github.com/prometheus-operator/prometheus-operator@v0.85.0/example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml',
  PrometheusRule:
    'github.com/prometheus-operator/prometheus-operator@v0.85.0/example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml',
  Certificate: 'github.com/cert-manager/cert-manager@v1.18.2/deploy/crds/crd-certificates.yaml',
  Issuer: 'github.com/cert-manager/cert-manager@v1.18.2/deploy/crds/crd-issuers.yaml',
  HTTPRoute: 'sigs.k8s.io/gateway-api@v1.3.0/config/crd/standard/gateway.networking.k8s.io_httproutes.yaml',
};

async function main([cache]) {
  await mkdir(out, { recursive: true });
  for (const [minor, version] of Object.entries(KUBERNETES)) {
    const file = join(cache, `k8s.io/kubernetes@${version}/api/openapi-spec/swagger.json`);
    await write(`kubernetes-${minor}.json`, fromOpenApi(JSON.parse(await readFile(file, 'utf8'))));
  }
  const custom = {};
  for (const file of Object.values(CUSTOM)) {
    const { spec } = parse(await readFile(join(cache, file), 'utf8'));
    for (const { name, served, schema } of spec.versions)
      if (served) custom[`${spec.group}/${name}/${spec.names.kind}`] = closed(schema.openAPIV3Schema);
  }
  await write('custom-resources.json', { kinds: custom, definitions: {} });
}

const write = (name, value) => writeFile(join(out, name), `${JSON.stringify(value)}\n`);

/** @returns `{ kinds: { 'apps/v1/Deployment': schema }, definitions }`, with references to `definitions` */
function fromOpenApi({ definitions }) {
  const needed = {};
  const need = (name) => {
    if (name in needed) return;
    needed[name] = true;
    needed[name] = closed(special(name) ?? definitions[name], need);
  };
  const kinds = {};
  for (const [name, definition] of Object.entries(definitions))
    for (const { group, version, kind } of definition['x-kubernetes-group-version-kind'] ?? []) {
      const api = group ? `${group}/${version}` : version;
      if (!KINDS[api]?.includes(kind)) continue;
      need(name);
      kinds[`${api}/${kind}`] = { $ref: `#/definitions/${name}` };
    }
  return { kinds, definitions: needed };
}

/** What OpenAPI says less well than the API server means it. */
function special(name) {
  if (name.endsWith('.IntOrString')) return { anyOf: [{ type: 'integer' }, { type: 'string' }] };
  if (name.endsWith('.Quantity'))
    return { anyOf: [{ type: 'number' }, { type: 'string', pattern: '^[0-9.]+[A-Za-z]*$' }] };
  return undefined;
}

const KEPT = [
  'type',
  'required',
  'enum',
  'pattern',
  'minimum',
  'maximum',
  'minLength',
  'maxLength',
  'minItems',
  'maxItems',
];

/** The schema without words, and with every object closed: an unknown field is a mistake. */
function closed(schema, need = () => {}) {
  if (schema.$ref) {
    need(schema.$ref.replace('#/definitions/', ''));
    return { $ref: schema.$ref };
  }
  if (schema['x-kubernetes-int-or-string']) return { anyOf: [{ type: 'integer' }, { type: 'string' }] };
  const result = Object.fromEntries(KEPT.filter((key) => schema[key] !== undefined).map((key) => [key, schema[key]]));
  // Go's flags are not known to JavaScript.
  if (result.pattern?.includes('(?i)')) delete result.pattern;
  for (const key of ['anyOf', 'oneOf', 'allOf'])
    if (schema[key] && !schema.properties) result[key] = schema[key].map((part) => closed(part, need));
  if (schema.items) result.items = closed(schema.items, need);
  if (schema.properties) {
    result.properties = Object.fromEntries(
      Object.entries(schema.properties).map(([key, part]) => [key, closed(part, need)]),
    );
    if (!schema['x-kubernetes-preserve-unknown-fields']) result.additionalProperties = false;
  }
  if (typeof schema.additionalProperties === 'object')
    result.additionalProperties = closed(schema.additionalProperties, need);
  return result;
}

await main(process.argv.slice(2));
