import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { documentedMetrics } from '../e2e/operating/metrics';

const root = join(__dirname, '../..');
const read = (path: string): string => readFileSync(join(root, path), 'utf8');

interface Rule {
  alert: string;
  labels?: { severity?: string };
  annotations?: { summary?: string };
}

const rules = parse(read('charts/margay/alerts.yaml')) as Rule[];
const dashboards = readdirSync(join(root, 'charts/margay/dashboards')).map(
  (name) => `charts/margay/dashboards/${name}`,
);

const metricsIn = (text: string): string[] => [...new Set(text.match(/\bmargay_[a-z_]+/g))];

/** What a histogram is stored as. */
const familyOf = (name: string): string => name.replace(/_(bucket|count|sum)$/, '');

/** Names that services register, as their sources spell them. */
function registeredInSources(): string[] {
  const sources = ['services', 'libs'].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((path) => /\/src\/.*\.ts$/.test(path) && !/\.(int-)?spec\.ts$|node_modules|\/dist\//.test(path))
      .map((path) => read(join(folder, path))),
  );
  return sources.flatMap((text) => text.match(/margay_[a-z_]+/g) ?? []);
}

describe('rules and dashboards', () => {
  it.each([
    ['alerts of the chart', JSON.stringify(rules)],
    ...dashboards.map((path): [string, string] => [path, read(path)]),
  ])('%s name only metrics that are documented', async (_, text) => {
    const documented = (await documentedMetrics()).map(({ name }) => name);
    const unknown = metricsIn(text).filter(
      (name) => !documented.includes(familyOf(name)) && !documented.includes(name),
    );
    expect(unknown).toEqual([]);
  });

  it('are told apart by their names, and say how bad it is and what it means', () => {
    const names = rules.map(({ alert }) => alert);
    expect(names.filter((name, index) => names.indexOf(name) !== index)).toEqual([]);
    for (const { alert, labels, annotations } of rules) {
      expect([alert, labels?.severity]).toEqual([alert, expect.stringMatching(/^(warning|critical)$/)]);
      expect([alert, annotations?.summary]).toEqual([alert, expect.stringMatching(/\w/)]);
    }
  });
});

describe('documented metrics', () => {
  it('are registered by a service', async () => {
    const registered = new Set(registeredInSources());
    const missing = (await documentedMetrics()).filter(({ name }) => !registered.has(name));
    expect(missing.map(({ name }) => name)).toEqual([]);
  });
});
