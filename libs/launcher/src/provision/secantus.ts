import { tmpdir } from 'node:os';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { UnavailableError } from '@margay/errors';
import { runCommand } from '../processes/run-command';
import { cachePath, fetchIntoCache } from './cache';
import { findProgram, findVersion, isProgram } from './find-program';
import type { StoreBinary, StoreContext, StoreSource } from './store-binary';
import { SECANTUS_CRATE, SECANTUS_WHEEL } from './versions';

const BUILD_LIMIT_MS = 40 * 60_000;
const BUILD_TOOLS = ['cargo', 'cmake', 'cc'];

/** SecantusDB built from its crate, where an earlier run left it. */
export async function findCachedSecantus({ config }: StoreContext): Promise<StoreBinary | undefined> {
  return findBuilt(config.cacheDirectory, 'secantus-cache');
}

async function findBuilt(cacheDirectory: string, source: StoreSource): Promise<StoreBinary | undefined> {
  const program = join(cachePath(cacheDirectory, 'secantusd-rs', SECANTUS_CRATE), 'bin', 'secantusd-rs');
  if (!(await isProgram(program)) || (await findVersion([program])) !== SECANTUS_CRATE) return undefined;
  return { kind: 'binary', engine: 'secantusd-rs', version: SECANTUS_CRATE, command: [program], source };
}

/** Builds the crate: some four minutes on idle cores. Passed over where a build tool is missing. */
export async function buildSecantus(context: StoreContext): Promise<StoreBinary | undefined> {
  const { config, progress, prove } = context;
  const missing: string[] = [];
  for (const tool of BUILD_TOOLS) if (!(await findProgram(tool, config.path))) missing.push(tool);
  if (missing.length > 0) {
    progress(`secantusd-rs cannot be built here: ${missing.join(', ')} not on the PATH`);
    return undefined;
  }
  progress(`building secantusd-rs ${SECANTUS_CRATE} with cargo, about four minutes, once per machine`);
  return fetchIntoCache<StoreBinary>({
    cacheDirectory: config.cacheDirectory,
    name: 'secantusd-rs',
    version: SECANTUS_CRATE,
    progress,
    find: () => findBuilt(config.cacheDirectory, 'secantus-cargo'),
    fetch: (directory) => cargoInstall(directory, context),
    prove,
  });
}

async function cargoInstall(directory: string, { config, progress }: StoreContext): Promise<void> {
  const target = await mkdtemp(join(tmpdir(), 'margay-cargo-'));
  try {
    const crate = ['secantus-mdb', '--version', SECANTUS_CRATE, '--locked', '--ignore-rust-version'];
    await runCommand('cargo', ['install', ...crate, '--root', directory], {
      env: { ...config.environment, CARGO_TARGET_DIR: target },
      timeoutMs: BUILD_LIMIT_MS,
      onLine: everySeconds(20, (line) => progress(`secantusd-rs: ${line.trim()}`)),
    });
  } finally {
    await rm(target, { recursive: true, force: true });
  }
}

/** Passes a line on when the last one was long enough ago. */
function everySeconds(seconds: number, tell: (line: string) => void): (line: string) => void {
  let last = 0;
  return (line) => {
    if (Date.now() - last < seconds * 1_000) return;
    last = Date.now();
    tell(line);
  };
}

/** SecantusDB's Python build: there in seconds, slower at work. */
export async function installSecantusWheel(context: StoreContext): Promise<StoreBinary | undefined> {
  const { config, progress, prove } = context;
  const find = () => findInstalledWheel(config.cacheDirectory);
  const present = await find();
  if (present) return present;
  const python = await findProgram('python3', config.path);
  if (!python) throw new UnavailableError('provision_failed', 'python3 is not on the PATH');
  progress(`installing secantusdb ${SECANTUS_WHEEL} with pip, 145 MB, once per machine`);
  return fetchIntoCache<StoreBinary>({
    cacheDirectory: config.cacheDirectory,
    name: 'secantusd-py',
    version: SECANTUS_WHEEL,
    progress,
    find,
    fetch: async (directory) => {
      const options = { env: config.environment, timeoutMs: 10 * 60_000 };
      await runCommand(python, ['-m', 'venv', directory], options);
      const requirement = `secantusdb==${SECANTUS_WHEEL}`;
      await runCommand(
        join(directory, 'bin', 'python'),
        ['-m', 'pip', 'install', '-q', '--only-binary=:all:', requirement],
        options,
      );
    },
    prove,
  });
}

async function findInstalledWheel(cacheDirectory: string): Promise<StoreBinary | undefined> {
  const bin = join(cachePath(cacheDirectory, 'secantusd-py', SECANTUS_WHEEL), 'bin');
  // By the interpreter: the script's first line names the folder it was installed in before it was moved here.
  const command = [join(bin, 'python'), join(bin, 'secantusd-py')];
  if (!(await isProgram(join(bin, 'secantusd-py')))) return undefined;
  return { kind: 'binary', engine: 'secantusd-py', version: SECANTUS_WHEEL, command, source: 'secantus-pypi' };
}
