// Finds helm, or builds it: MARGAY_HELM, the PATH, the cache, then Go's module proxy.
import { execFile, spawn } from 'node:child_process';
import { mkdir, rename, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const VERSION = '4.2.4';
const OLDEST = [3, 14];
const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'margay');
const built = join(cache, `helm-${VERSION}/helm`);

/** @returns the command line that starts helm, as a list */
export async function findHelm(progress) {
  const candidates = [
    ...(process.env.MARGAY_HELM ? [process.env.MARGAY_HELM.split(' ')] : []),
    ['helm'],
    // The cluster of the tests has it in its one program.
    [join(cache, 'testcluster/bin/testcluster'), 'helm'],
    [built],
  ];
  for (const command of candidates) if (await works(command)) return command;
  await build(progress);
  if (await works([built])) return [built];
  throw new Error('helm was built and does not start');
}

async function works([program, ...first]) {
  try {
    const { stdout } = await promisify(execFile)(program, [...first, 'version', '--template', '{{.Version}}']);
    const [, major, minor] = /v(\d+)\.(\d+)/.exec(stdout) ?? [];
    return Number(major) > OLDEST[0] || (Number(major) === OLDEST[0] && Number(minor) >= OLDEST[1]);
  } catch {
    return false; // not there, or something else of this name
  }
}

async function build(progress) {
  progress(`building helm ${VERSION} with Go, some minutes (once)`);
  const draft = join(cache, `helm-${VERSION}.${process.pid}`);
  await mkdir(draft, { recursive: true });
  try {
    await go(['install', '-trimpath', '-ldflags', '-s -w', `helm.sh/helm/v4/cmd/helm@v${VERSION}`], {
      GOBIN: draft,
      CGO_ENABLED: '0',
    });
    await rm(join(cache, `helm-${VERSION}`), { recursive: true, force: true });
    await rename(draft, join(cache, `helm-${VERSION}`));
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

function go(args, env) {
  return new Promise((resolve, reject) => {
    const child = spawn('go', args, { env: { ...process.env, ...env }, stdio: ['ignore', 2, 2] });
    child.once('error', () => reject(new Error('neither helm nor Go is there: install helm 3.14 or later')));
    child.once('exit', (code) => (code === 0 ? resolve() : reject(new Error('helm could not be built; see above'))));
  });
}
