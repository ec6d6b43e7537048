// The program that evaluates alerting rules as Prometheus does; built once for each state of its source.
import { createHash } from 'node:crypto';
import { access, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { root } from '../prepare.mjs';
import { buildInCache, cache, hasGo } from './go.mjs';

const source = join(root, 'tools/chart/alerts');

/** @returns its path; undefined where it is not there and can't be built for want of Go */
export async function findAlertEngine(progress) {
  const hash = createHash('sha256');
  for (const name of (await readdir(source)).sort()) hash.update(await readFile(join(source, name)));
  const name = `alerts-${hash.digest('hex').slice(0, 16)}`;
  const program = join(cache, name, 'alerts');
  try {
    await access(program);
    return program;
  } catch {
    if (!(await hasGo())) return undefined;
  }
  progress("building Prometheus' rule engine with Go, a minute (once)");
  const command = (folder) => ['build', '-trimpath', '-ldflags', '-s -w', '-o', join(folder, 'alerts'), '.'];
  await buildInCache(name, command, { cwd: source });
  return program;
}
