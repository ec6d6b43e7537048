import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { readChartFile } from './render';

const K8S = join(__dirname, '../../k8s');
const read = (name: string) => parse(readFileSync(join(K8S, name), 'utf8')) as Record<string, unknown>;

describe('k8s/', () => {
  it('has a base whose parts are all there', () => {
    const { resources } = read('base/kustomization.yaml') as { resources: string[] };
    expect(['kustomization.yaml', ...resources].sort()).toEqual(readdirSync(join(K8S, 'base')).sort());
    expect(JSON.stringify(read('base/namespace.yaml'))).toContain('"pod-security.kubernetes.io/enforce":"restricted"');
  });

  it('serves the metric that the chart scales by', () => {
    const text = JSON.stringify(read('examples/prometheus-adapter.yaml'));
    expect(text).toContain('"as":"margay_dispatch_demand_runs"');
    expect(readChartFile('templates/autoscalers.yaml')).toContain('name: margay_dispatch_demand_runs');
  });
});
