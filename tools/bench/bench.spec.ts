import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

const entry = join(__dirname, '../bench.mjs');
const bench = (...args: string[]) => spawnSync(process.execPath, [entry, ...args], { encoding: 'utf8' });

it('lists benches that exist when none is named', () => {
  const { status, stdout } = bench();
  expect(status).toBe(0);
  const names = [...stdout.matchAll(/^ {2}([a-z]+) /gm)].map(([, name]) => name);
  expect(names).toEqual(['steps', 'stream', 'streams', 'replay', 'runs', 'create', 'start', 'size']);
  for (const name of names) expect(existsSync(join(__dirname, `${name}.mjs`))).toBe(true);
});

it('refuses a name that it does not know', () => {
  const { status, stdout } = bench('nothing');
  expect(status).toBe(2);
  expect(stdout).toContain('npm run bench -- NAME');
});

it('calculates the size of an installation', () => {
  const { status, stdout } = bench('size', '--runs', '1000', '--streams', '20000', '--step-seconds', '1', '--json');
  expect(status).toBe(0);
  const figures = new Map(
    stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { name: string; value: number })
      .map(({ name, value }) => [name, value]),
  );
  expect(Object.fromEntries(figures)).toMatchObject({
    gateway: 3,
    session: 2,
    'agent-runner': 14,
    'tool-executor': 2,
    egress: 2,
    'session, commits': 2_000,
    'nodes for sandboxes (volumes are scarce)': 40,
  });
});

it('says which number of the peak is none', () => {
  const { status, stderr } = bench('size', '--runs', 'many');
  expect([status, stderr]).toEqual([1, expect.stringContaining('--runs is no number above 0: many')]);
});
