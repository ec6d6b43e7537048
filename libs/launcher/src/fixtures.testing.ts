import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { launcherConfig, type LauncherConfig } from './config';

/** A folder of its own for a test; `remove` in afterEach. */
export async function temporaryFolder(): Promise<{ path: string; remove(): Promise<void> }> {
  const path = await mkdtemp(join(tmpdir(), 'margay-test-'));
  return { path, remove: () => rm(path, { recursive: true, force: true }) };
}

/** A program that prints one line, whatever it is asked. */
export async function fakeProgram(file: string, says: string): Promise<string> {
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, `#!/bin/sh\necho '${says}'\n`);
  await chmod(file, 0o755);
  return file;
}

/** A machine with an empty cache and nothing but `<folder>/bin` on its PATH. */
export function emptyMachine(folder: string): LauncherConfig {
  return { ...launcherConfig({}), cacheDirectory: join(folder, 'cache'), path: [join(folder, 'bin')] };
}

/** A stand-in for the margay bundle: ready at once, prints what it was started with, ends on SIGTERM. */
export const FAKE_MARGAY = `
const http = require('node:http');
const [host, port] = process.env.MARGAY_MANAGEMENT_LISTEN.split(':');
const names = Object.keys(process.env).filter((name) => name.startsWith('MARGAY_')).sort();
console.log(JSON.stringify({ args: process.argv.slice(2), flags: process.execArgv, names }));
http.createServer((request, response) => {
  response.statusCode = request.url === '/readyz' ? 200 : 404;
  response.end();
}).listen(Number(port), host);
process.on('SIGTERM', () => process.exit(0));
`;
