import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

const entry = join(__dirname, '../bench.mjs');
const bench = (...args: string[]) => spawnSync(process.execPath, [entry, ...args], { encoding: 'utf8' });

it('lists benches that exist when none is named', () => {
  const { status, stdout } = bench();
  expect(status).toBe(0);
  const names = [...stdout.matchAll(/^ {2}([a-z]+) /gm)].map(([, name]) => name);
  expect(names).toEqual(['steps', 'stream', 'streams', 'replay', 'runs', 'create', 'start']);
  for (const name of names) expect(existsSync(join(__dirname, `${name}.mjs`))).toBe(true);
});

it('refuses a name that it does not know', () => {
  const { status, stdout } = bench('nothing');
  expect(status).toBe(2);
  expect(stdout).toContain('npm run bench -- NAME');
});
