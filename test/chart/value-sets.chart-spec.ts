import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import Ajv from 'ajv';
import { CHART, readChartFile, readChartYaml, render, type KubernetesObject } from './render';

interface Bundle {
  kinds: Record<string, object>;
  definitions: Record<string, object>;
}

const SETS = readdirSync(join(CHART, 'ci')).filter((name) => name.endsWith('.yaml'));
const schemas = join(__dirname, '../../tools/chart/schemas');
const bundle = (name: string) => JSON.parse(readFileSync(join(schemas, name), 'utf8')) as Bundle;
const custom = bundle('custom-resources.json');

describe.each(['1.30', '1.36'])('objects for Kubernetes %s', (minor) => {
  const known = bundle(`kubernetes-${minor}.json`);
  const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false, unicodeRegExp: false });
  const definitions = { definitions: known.definitions };

  /** What the API server would say against an object. */
  const faultsOf = (object: KubernetesObject): string[] => {
    const key = `${object.apiVersion}/${object.kind}`;
    const schema = known.kinds[key] ?? custom.kinds[key];
    if (!schema) return [`${key}: no such kind`];
    const validate = ajv.getSchema(key) ?? ajv.compile({ $id: key, ...definitions, allOf: [schema] });
    void validate(object);
    return (validate.errors ?? []).map(({ instancePath, message, params }) => `${key} ${object.metadata.name}${instancePath} ${message} ${JSON.stringify(params)}`); // prettier-ignore
  };

  it.each(SETS)('are what the API server takes: %s', (set) => {
    const objects = render(readChartYaml(`ci/${set}`) as object);
    expect(objects.length).toBeGreaterThan(20);
    expect(objects.flatMap(faultsOf)).toEqual([]);
  });

  it('would be refused with a field that does not exist, or one of another type', () => {
    const [pod] = render().filter(({ kind }) => kind === 'Pod');
    expect(faultsOf({ ...pod!, spec: { ...pod!.spec, restartpolicy: 'Never' } })).toHaveLength(1);
    expect(faultsOf({ ...pod!, spec: { ...pod!.spec, hostNetwork: 'no' } })).toHaveLength(1);
    expect(faultsOf({ ...pod!, kind: 'Pot' })).toEqual(['v1/Pot: no such kind']);
  });
});

describe('every value set', () => {
  it('is there for each kind of installation', () => {
    expect(SETS.length).toBeGreaterThanOrEqual(10);
  });

  it.each(SETS)('gives each object a name, a namespace and labels, once: %s', (set) => {
    const objects = render(readChartYaml(`ci/${set}`) as object);
    const names = objects.map(({ kind, metadata }) => `${kind} ${metadata.namespace ?? ''}/${metadata.name}`);
    expect(new Set(names).size).toBe(names.length);
    for (const { kind, metadata } of objects) {
      if (metadata.name.endsWith('-note')) continue;
      expect({ kind, name: metadata.name, labels: metadata.labels }).toMatchObject({
        labels: {
          'app.kubernetes.io/name': 'margay',
          'app.kubernetes.io/instance': 'margay',
          'helm.sh/chart': 'margay-0.1.0',
        },
      });
      if (!/^(Namespace|ClusterRole|ClusterRoleBinding)$/.test(kind))
        expect(metadata.namespace).toMatch(/^(agents|margay-workspaces|team-(sandboxes|a|b))$/);
    }
  });

  it('is rendered without chance and without a look into a cluster', () => {
    const templates = readdirSync(join(CHART, 'templates')).map((name) => readChartFile(`templates/${name}`));
    expect(templates.join('\n')).not.toMatch(
      /\b(lookup|now|randAlpha\w*|randNumeric|randBytes|uuidv4|genCA|genSignedCert|genPrivateKey)\b[ (]/,
    );
  });
});
