import type { Isolation } from '../driver/sandbox-driver';
import type { Mount } from './bubblewrap';
import { EGRESS_FOLDER, EGRESS_SOCKET } from './egress-doors';
import { INSIDE } from './launcher';
import { AUTHORITY_FILE, type SandboxFolder } from './sandbox-folder';
import type { SandboxRecord } from './sandbox-records';

export type SandboxPaths = Record<keyof typeof INSIDE, string>;

export const INSIDE_PATHS: SandboxPaths = INSIDE;

/** Outside bubblewrap the daemon uses the host's paths. */
export function hostPaths(folder: SandboxFolder, workspace: string): SandboxPaths {
  return {
    root: workspace,
    home: folder.file('home'),
    run: folder.file('run'),
    state: folder.file('state'),
    results: folder.file('results'),
    attachments: folder.file('attachments'),
    trust: folder.file('trust.pem'),
    egress: '',
    authority: '',
    cache: '',
  };
}

/** Three folders above the workspace there is nothing but the root: that is where a worktree looks for its repository. */
const REPOSITORY = '/.git';

/** What bubblewrap shows of the host. */
export function mountsOf(
  folder: SandboxFolder,
  { folder: workspace, repository }: Pick<SandboxRecord, 'folder' | 'repository'>,
  cacheFolder: string,
  { hasEgress, hasAuthority }: Pick<DaemonLimits, 'hasEgress' | 'hasAuthority'>,
): Mount[] {
  const own = (name: string, target: string, isReadOnly = false): Mount => ({
    source: folder.file(name),
    target,
    isReadOnly,
  });
  return [
    { source: workspace, target: INSIDE.root, isReadOnly: false },
    ...(repository ? [{ source: repository.folder, target: REPOSITORY, isReadOnly: false }] : []),
    own('run', INSIDE.run),
    own('state', INSIDE.state),
    own('results', INSIDE.results),
    own('attachments', INSIDE.attachments),
    own('home', INSIDE.home),
    own('tmp', '/tmp'),
    own('trust.pem', INSIDE.trust, true),
    ...(hasEgress ? [own(EGRESS_FOLDER, INSIDE.egress, true)] : []),
    ...(hasAuthority ? [own(AUTHORITY_FILE, INSIDE.authority, true)] : []),
    own('passwd', '/etc/passwd', true),
    own('group', '/etc/group', true),
    own('hosts', '/etc/hosts', true),
    { source: cacheFolder, target: INSIDE.cache, isReadOnly: true },
  ];
}

export interface DaemonLimits {
  isolation: Isolation;
  idleExitMs: number;
  memoryBytes: number;
  /** 0 = none. */
  processes: number;
  /** Whether there is a way out, through the egress proxy. */
  hasEgress: boolean;
  /** Whether the proxy there reads requests, by an authority that programs are to believe. */
  hasAuthority: boolean;
  /** The profile of experiments: a fraction of everything. */
  isStrict: boolean;
  /** For tests only. */
  faultPoints?: string | undefined;
}

/** The daemon's whole environment; nothing of this process's own gets in. */
export function daemonEnvironment(
  record: SandboxRecord,
  paths: SandboxPaths,
  limits: DaemonLimits,
): Record<string, string> {
  const scratch = '/tmp/margay';
  return {
    MARGAY_SANDBOX_ID: record.sandboxId,
    MARGAY_SANDBOX_LISTEN: `unix:${paths.run}/s`,
    MARGAY_SANDBOX_TRUST_FILE: paths.trust,
    MARGAY_SANDBOX_STATE_DIR: paths.state,
    MARGAY_SANDBOX_ROOT: paths.root,
    MARGAY_SANDBOX_ALLOWED_ROOTS: JSON.stringify(['/margay/plan', '/margay/attachments', scratch]),
    MARGAY_SANDBOX_SPILL_DIR: paths.results,
    MARGAY_SANDBOX_ATTACHMENTS_DIR: paths.attachments,
    MARGAY_SANDBOX_ISOLATION: limits.isolation,
    MARGAY_SANDBOX_MIN_GENERATION: String(record.generation),
    MARGAY_SANDBOX_MIN_EPOCH: String(record.epoch),
    MARGAY_SANDBOX_IDLE_EXIT_MS: String(limits.idleExitMs),
    MARGAY_SANDBOX_MEMORY_BYTES: String(limits.memoryBytes),
    MARGAY_SANDBOX_PROCESSES: String(limits.processes),
    ...(limits.isStrict ? { MARGAY_SANDBOX_PROFILE: 'strict' } : {}),
    ...placesOf(record, paths, limits.isolation),
    MARGAY_SESSION_ID: record.sessionId,
    PATH: '/usr/local/bin:/usr/bin:/bin:/margay/bin',
    HOME: paths.home,
    LANG: 'C.UTF-8',
    TZ: 'UTC',
    ...(limits.faultPoints === undefined ? {} : { MARGAY_FAULT_POINTS: limits.faultPoints }),
    ...(limits.hasEgress ? { MARGAY_SANDBOX_PROXY_SOCKET: `${paths.egress}/${EGRESS_SOCKET}` } : {}),
    ...(limits.hasAuthority ? { MARGAY_SANDBOX_CA_FILE: paths.authority } : {}),
    ...(paths.cache === '' ? {} : { NODE_COMPILE_CACHE: paths.cache }),
  };
}

/** What agents of the project can exchange while the sandbox starts, the daemon has a look at. */
function placesOf(
  { folderId = '', repository }: SandboxRecord,
  { root }: SandboxPaths,
  isolation: Isolation,
): Record<string, string> {
  if (!repository) return {};
  const shown = isolation === 'bwrap' ? REPOSITORY : repository.folder;
  return { MARGAY_SANDBOX_PLACES: JSON.stringify({ [root]: folderId, [shown]: repository.id }) };
}
