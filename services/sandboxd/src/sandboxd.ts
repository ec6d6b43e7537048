import { existsSync, readFileSync, rmSync } from 'node:fs';
import { shellEnvironment } from '@margay/toolbox';
import type { SandboxdConfig } from './config';
import { GrantVerifier } from './grants/grant-verifier';
import { Sandbox, type SandboxOptions } from './sandbox';
import { SandboxdServer } from './sandboxd.grpc';

export interface RunningSandboxd {
  /** Resolves when the daemon has ended, by `Shutdown`, idleness or `close`. */
  ended: Promise<void>;
  close(graceMs: number): Promise<void>;
}

const IDLE_CHECK_MS = 3_000;
const CLOSE_GRACE_MS = 1_000;

/** Opens the sandbox and serves it on its socket. */
export async function startSandboxd(config: SandboxdConfig): Promise<RunningSandboxd> {
  const verifier = new GrantVerifier({
    sandboxId: config.MARGAY_SANDBOX_ID,
    trust: readFileSync(config.MARGAY_SANDBOX_TRUST_FILE, 'utf8'),
  });
  const sandbox = await Sandbox.open(sandboxOptions(config));
  let finish: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => (finish = resolve));
  let closing: Promise<void> | undefined;
  const close = (graceMs: number): Promise<void> => {
    closing ??= (async () => {
      clearInterval(idleTimer);
      await sandbox.close(graceMs);
      server.close();
      finish();
    })();
    return closing;
  };
  const server = new SandboxdServer({
    sandbox,
    verifier,
    listen: config.MARGAY_SANDBOX_LISTEN,
    onShutdown: (graceMs) => void close(graceMs),
  });
  const socket = config.MARGAY_SANDBOX_LISTEN.slice('unix:'.length);
  const idleTimer = setInterval(() => {
    // Without its socket, e.g. because the whole home was deleted, nobody can ever call again.
    const isUseless = !existsSync(socket) || sandbox.idleMs > config.MARGAY_SANDBOX_IDLE_EXIT_MS;
    if (isUseless) void close(CLOSE_GRACE_MS);
  }, IDLE_CHECK_MS);
  // A killed daemon leaves its socket file behind.
  rmSync(socket, { force: true });
  await server.start();
  return { ended, close };
}

function sandboxOptions(config: SandboxdConfig): SandboxOptions {
  const { PATH, HOME, LANG, TZ } = config;
  return {
    stateFolder: config.MARGAY_SANDBOX_STATE_DIR,
    root: config.MARGAY_SANDBOX_ROOT,
    allowedRoots: config.MARGAY_SANDBOX_ALLOWED_ROOTS,
    spillFolder: config.MARGAY_SANDBOX_SPILL_DIR,
    isolation: config.MARGAY_SANDBOX_ISOLATION,
    environment: shellEnvironment({ PATH, HOME, LANG, TZ }, config.MARGAY_SESSION_ID),
    limits: {
      memoryBytes: config.MARGAY_SANDBOX_MEMORY_BYTES,
      fileBytes: config.MARGAY_SANDBOX_FILE_BYTES,
      ...(config.MARGAY_SANDBOX_PROCESSES > 0 ? { processes: config.MARGAY_SANDBOX_PROCESSES } : {}),
    },
    minimum: { generation: config.MARGAY_SANDBOX_MIN_GENERATION, epoch: config.MARGAY_SANDBOX_MIN_EPOCH },
  };
}
