import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { CHART, readChartFile, readChartYaml } from './render';

const ROOT = join(__dirname, '../..');

interface Alert {
  alert: string;
  expr: string;
  labels: { severity: string };
  annotations: { summary: string };
}
const alerts = readChartYaml('alerts.yaml') as Alert[];
const boards = readdirSync(join(CHART, 'dashboards')).map((name) => readChartFile(`dashboards/${name}`));

/** Names of metrics in the code of the services, with what a histogram adds to them. */
function metricsOfServices(): Set<string> {
  const folders = ['libs/platform/src', ...['gateway', 'session', 'agent-runner', 'tool-executor', 'egress', 'margay'].map((name) => `services/${name}/src`)]; // prettier-ignore
  const files = folders.flatMap((folder) => readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts') && !name.endsWith('spec.ts')).map((name) => join(ROOT, folder, name))); // prettier-ignore
  const names = files.flatMap((file) => readFileSync(file, 'utf8').match(/(?<=['`])margay_[a-z_]+(?=['`])/g) ?? []);
  // Made of two words at run time.
  names.push('margay_dispatch_demand_runs', 'margay_dispatch_queued_runs');
  return new Set(names.flatMap((name) => [name, `${name}_bucket`, `${name}_count`, `${name}_sum`]));
}

const metricsIn = (text: string) => text.match(/\bmargay_[a-z_]+/g) ?? [];

describe('what is made from values.yaml', () => {
  it('is up to date: README, schema and dashboards', async () => {
    const script = `import('./tools/chart/generate.mjs').then(async ({ generated }) => console.log(JSON.stringify(await generated())))`;
    const { stdout, stderr } = spawnSync(process.execPath, ['-e', script], { cwd: ROOT, encoding: 'utf8' });
    expect(stderr).toBe('');
    const files = JSON.parse(stdout) as Record<string, string>;
    expect(Object.keys(files)).toHaveLength(6);
    for (const [name, text] of Object.entries(files))
      expect([name, readChartFile(name) === text]).toEqual([name, true]);
  });

  it('explains every value', () => {
    const lines = readChartFile('README.md')
      .split('\n')
      .filter((line) => line.startsWith('| `'));
    const silent = lines.map((line) => line.split(' | ')).filter(([, , meaning = '']) => meaning.replaceAll('|', '').trim() === ''); // prettier-ignore
    expect(lines.length).toBeGreaterThan(100);
    expect(silent.map(([key]) => key)).toEqual([]);
  });

  it('closes every object of the schema', () => {
    const open: string[] = [];
    const walk = (
      schema: { type?: unknown; properties?: object; additionalProperties?: unknown },
      path: string,
    ): void => {
      if (schema.properties && schema.additionalProperties === undefined) open.push(path);
      for (const [key, part] of Object.entries(schema.properties ?? {})) walk(part as typeof schema, `${path}.${key}`);
    };
    walk(JSON.parse(readChartFile('values.schema.json')) as object, '');
    expect(open).toEqual([]);
  });

  it('uses every value in some template', () => {
    const templates = readdirSync(join(CHART, 'templates'))
      .map((name) => readChartFile(`templates/${name}`))
      .join('\n');
    const leaves = (value: unknown): string[] =>
      value !== null && typeof value === 'object' && !Array.isArray(value)
        ? Object.entries(value).flatMap(([key, inner]) => [key, ...leaves(inner)])
        : [];
    const { runner, ...rest } = parse(readChartFile('values.yaml')) as { runner: { pools: object[] } };
    const sections = { ...rest, runner };
    // Handed on as they are.
    const whole = new Set(['requests', 'limits', 'cpu', 'memory', 'k8s-app', 'grafana_dashboard']);
    const unused = [...new Set(leaves(sections))].filter((key) => !whole.has(key) && !new RegExp(`\\b${key}\\b`).test(templates)); // prettier-ignore
    expect(unused).toEqual([]);
  });
});

describe('alerts and dashboards', () => {
  const known = metricsOfServices();

  it.each(alerts.map((alert) => [alert.alert, alert] as const))(
    '%s asks for metrics that exist, says what it means and what to do',
    (name, alert) => {
      expect(metricsIn(alert.expr).filter((metric) => !known.has(metric))).toEqual([]);
      expect(metricsIn(alert.expr).length).toBeGreaterThan(0);
      expect(['warning', 'critical']).toContain(alert.labels.severity);
      expect(alert.annotations.summary.length).toBeGreaterThan(20);
      expect(readFileSync(join(ROOT, 'docs/installing-alerts.md'), 'utf8')).toContain(`## ${name}\n`);
    },
  );

  it('dashboards ask for metrics that exist', () => {
    for (const board of boards) expect(metricsIn(board).filter((metric) => !known.has(metric))).toEqual([]);
  });

  it('every metric of the services is on a dashboard or in an alert', () => {
    const shown = new Set([...boards, JSON.stringify(alerts)].flatMap(metricsIn).map((name) => name.replace(/_(bucket|count|sum)$/, ''))); // prettier-ignore
    const plain = [...known].filter((name) => !/_(bucket|count|sum)$/.test(name));
    expect(plain.filter((name) => !shown.has(name))).toEqual([]);
  });

  it('parentheses and braces of every expression match', () => {
    for (const { alert, expr } of alerts)
      for (const [open, close] of ['()', '{}', '[]'].map((pair) => [...pair]))
        expect([alert, expr.split(open!).length]).toEqual([alert, expr.split(close!).length]);
  });
});
