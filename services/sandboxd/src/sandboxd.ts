import { existsSync, readFileSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { UnavailableError } from '@margay/errors';
import { PROFILES, shellEnvironment } from '@margay/toolbox';
import { joinAuthority } from './certificates';
import type { SandboxdConfig } from './config';
import { GitRemotes } from './git-remotes';
import { GrantVerifier } from './grants/grant-verifier';
import { openProxyDoor, proxyEnvironment } from './proxy-door';
import { selfTest } from './self-test';
import { Sandbox, type SandboxOptions } from './sandbox';
import { SandboxdServer } from './sandboxd.grpc';
import { sandboxIdentity } from './tls/identity';

export interface RunningSandboxd {
  /** Resolves when the daemon has ended, by `Shutdown`, idleness or `close`. */
  ended: Promise<void>;
  /** Refuses new calls and lets those that run go on for so long; then they are ended. 0 = nothing of it. */
  drain(graceMs: number): Promise<void>;
  close(graceMs: number): Promise<void>;
}

const IDLE_CHECK_MS = 3_000;
const CLOSE_GRACE_MS = 1_000;
/** How long a call may take, by profile. */
const WALL_MS = { default: 900_000, strict: 300_000 };
/** The results of calls that ended last are on their way. */
const LAST_WORDS_MS = 250;

/** Opens the sandbox and serves it on its socket or port. Whoever can connect finds it working. */
export async function startSandboxd(config: SandboxdConfig): Promise<RunningSandboxd> {
  const verifier = new GrantVerifier({
    sandboxId: config.MARGAY_SANDBOX_ID,
    trust: trustOf(config),
  });
  requirePlaces(config.MARGAY_SANDBOX_PLACES);
  const options = sandboxOptions(config);
  const { MARGAY_SANDBOX_PROXY_SOCKET: proxySocket, MARGAY_SANDBOX_PROXY_URL: proxyUrl } = config;
  const outsideFolder = path.join(config.MARGAY_SANDBOX_STATE_DIR, 'outside');
  const remotes = new GitRemotes({ socketFile: proxySocket, url: proxyUrl }, outsideFolder);
  const environment = {
    ...options.environment,
    ...proxyEnvironment(config),
    ...(await joinAuthority(authorityOf(config), outsideFolder)),
    ...remotes.environment,
  };
  const sandbox = await Sandbox.open({ ...options, environment, onSession: () => remotes.start() });
  const proxyDoor = proxySocket === undefined ? undefined : await openProxyDoor(proxySocket);
  let finish: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => (finish = resolve));
  let closing: Promise<void> | undefined;
  const close = (graceMs: number): Promise<void> => {
    closing ??= (async () => {
      clearInterval(idleTimer);
      await sandbox.close(graceMs);
      server.close();
      proxyDoor?.close();
      remotes.stop();
      finish();
    })();
    return closing;
  };
  const drain = async (graceMs: number): Promise<void> => {
    if (graceMs === 0) return;
    await sandbox.drain(graceMs);
    await sandbox.saved(config.MARGAY_SANDBOX_LAST_ARCHIVE_MS);
    await delay(LAST_WORDS_MS);
  };
  const { socket, listen } = doorOf(config);
  const server = new SandboxdServer({
    sandbox,
    verifier,
    listen,
    identity: socket === undefined ? await sandboxIdentity(config.MARGAY_SANDBOX_STATE_DIR) : undefined,
    onShutdown: (graceMs) => void close(graceMs),
  });
  const idleExitMs = config.MARGAY_SANDBOX_IDLE_EXIT_MS || Infinity;
  const idleTimer = setInterval(() => {
    // Without its socket, e.g. because the whole home was deleted, nobody can ever call again.
    const isUseless = (socket !== undefined && !existsSync(socket)) || sandbox.idleMs > idleExitMs;
    if (isUseless) void close(CLOSE_GRACE_MS);
  }, IDLE_CHECK_MS);
  // A killed daemon leaves its socket file behind.
  if (socket !== undefined) rmSync(socket, { force: true });
  else {
    await selfTest(config);
    await sandbox.selfTest();
  }
  await server.start();
  return { ended, close, drain };
}

function doorOf({ MARGAY_SANDBOX_LISTEN: listen }: SandboxdConfig): { listen: string; socket?: string } {
  return listen.startsWith('unix:') ? { listen, socket: listen.slice('unix:'.length) } : { listen };
}

/** Before anything is served. */
function requirePlaces(places: Readonly<Record<string, string>>): void {
  for (const [folder, id] of Object.entries(places)) {
    const { dev, ino } = statSync(folder);
    if (`${dev}:${ino}` !== id)
      throw new UnavailableError('workspace_exchanged', `${folder} is not the folder that was meant.`);
  }
}

function trustOf({ MARGAY_SANDBOX_TRUST: keys, MARGAY_SANDBOX_TRUST_FILE: file }: SandboxdConfig): string {
  if (keys !== undefined) return keys;
  if (file !== undefined) return readFileSync(file, 'utf8');
  throw new UnavailableError('bad_environment', 'sandboxd needs MARGAY_SANDBOX_TRUST or MARGAY_SANDBOX_TRUST_FILE.');
}

function authorityOf(config: SandboxdConfig): string | undefined {
  const { MARGAY_SANDBOX_CA: pem, MARGAY_SANDBOX_CA_FILE: file } = config;
  return pem ?? (file === undefined ? undefined : readFileSync(file, 'utf8'));
}

function sandboxOptions(config: SandboxdConfig): SandboxOptions {
  const { PATH, HOME, LANG, TZ } = config;
  return {
    stateFolder: config.MARGAY_SANDBOX_STATE_DIR,
    root: config.MARGAY_SANDBOX_ROOT,
    allowedRoots: config.MARGAY_SANDBOX_ALLOWED_ROOTS,
    spillFolder: config.MARGAY_SANDBOX_SPILL_DIR,
    attachmentsFolder: config.MARGAY_SANDBOX_ATTACHMENTS_DIR,
    isolation: config.MARGAY_SANDBOX_ISOLATION,
    environment: {
      ...shellEnvironment({ PATH, HOME, LANG, TZ }, config.MARGAY_SESSION_ID || undefined),
      MARGAY_ATTACHMENTS: config.MARGAY_SANDBOX_ATTACHMENTS_DIR,
    },
    limits: {
      memoryBytes: config.MARGAY_SANDBOX_MEMORY_BYTES,
      ...PROFILES[config.MARGAY_SANDBOX_PROFILE],
      ...(config.MARGAY_SANDBOX_PROCESSES > 0 ? { processes: config.MARGAY_SANDBOX_PROCESSES } : {}),
    },
    wallMs: WALL_MS[config.MARGAY_SANDBOX_PROFILE],
    ...(config.MARGAY_SANDBOX_ISOLATION === 'pod' && {
      watched: {
        workspaceBytes: config.MARGAY_SANDBOX_WORKSPACE_BYTES,
        processes: config.MARGAY_SANDBOX_POD_PROCESSES,
      },
    }),
    minimum: { generation: config.MARGAY_SANDBOX_MIN_GENERATION, epoch: config.MARGAY_SANDBOX_MIN_EPOCH },
  };
}
