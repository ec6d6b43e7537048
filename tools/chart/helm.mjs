// Finds helm, or builds it: MARGAY_HELM, the PATH, the cache, then Go's module proxy.
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { buildInCache, cache, hasGo } from './go.mjs';

const VERSION = '4.2.4';
const OLDEST = [3, 14];
const built = join(cache, `helm-${VERSION}/helm`);

/** @returns the command line that starts helm, as a list; undefined where there is none and no Go to build it with */
export async function findHelm(progress) {
  const candidates = [
    ...(process.env.MARGAY_HELM ? [process.env.MARGAY_HELM.split(' ')] : []),
    ['helm'],
    [built],
    // The cluster of the tests has it in its one program, which starts more slowly.
    [join(cache, 'testcluster/bin/testcluster'), 'helm'],
  ];
  for (const command of candidates) if (await works(command)) return command;
  if (!(await hasGo())) return undefined;
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
  const command = () => ['install', '-trimpath', '-ldflags', '-s -w', `helm.sh/helm/v4/cmd/helm@v${VERSION}`];
  await buildInCache(`helm-${VERSION}`, command, { env: (folder) => ({ GOBIN: folder }) });
}
