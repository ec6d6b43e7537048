import { existsSync, lstatSync, readlinkSync } from 'node:fs';
import path from 'node:path';

/** Something of the host shown inside, e.g. the workspace. */
export interface Mount {
  source: string;
  target: string;
  isReadOnly: boolean;
}

export interface BubblewrapOptions {
  mounts: readonly Mount[];
  environment: Readonly<Record<string, string>>;
  /** The path the workspace has outside, so that absolute paths of a project still lead into it. */
  hostPath?: string;
  /** bubblewrap ≥ 0.8 can forbid further user namespaces (and, since 0.7, bound a tmpfs). */
  canDisableUserNamespaces: boolean;
  /** Whether a filter of system calls comes in at `SECCOMP_FD`. */
  hasFilter: boolean;
  command: readonly string[];
}

export const WORKSPACE = '/workspace';
export const AGENT_HOME = '/home/agent';
/** bubblewrap writes here which process is the first one inside. */
export const INFO_FD = 3;
/** bubblewrap reads the filter of system calls here. */
export const SECCOMP_FD = 4;
/** Memory that files may take in /dev/shm; nothing else of /dev can be written. */
const SHARED_MEMORY_BYTES = 256 * 1024 * 1024;

const ROOT_FOLDERS = ['bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'];
/** What programs need of /etc; nothing of it is secret. */
const ETC = [
  'alternatives',
  'ld.so.cache',
  'ld.so.conf',
  'ld.so.conf.d',
  'localtime',
  'mime.types',
  'ssl/certs',
  'ssl/openssl.cnf',
  'ca-certificates',
  'pki/tls/certs',
  'bash.bashrc',
  'protocols',
  'services',
  'terminfo',
  'magic',
  'java-17-openjdk',
  'python3',
];

/** The command line of bubblewrap: own namespaces, the system read-only, no network, and only the given mounts. */
export function bubblewrapArguments(options: BubblewrapOptions): string[] {
  return [
    ...['--unshare-user', '--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-net', '--unshare-cgroup-try'],
    ...(options.canDisableUserNamespaces ? ['--disable-userns'] : []),
    ...['--new-session', '--hostname', 'sandbox', '--clearenv', '--proc', '/proc', '--dev', '/dev'],
    ...(options.canDisableUserNamespaces ? ['--size', String(SHARED_MEMORY_BYTES)] : []),
    ...['--perms', '1777', '--tmpfs', '/dev/shm', '--remount-ro', '/dev'],
    ...(options.hasFilter ? ['--seccomp', String(SECCOMP_FD)] : []),
    ...systemMounts(),
    ...options.mounts.flatMap(({ source, target, isReadOnly }) => [
      isReadOnly ? '--ro-bind' : '--bind',
      source,
      target,
    ]),
    ...hostPathLink(options.hostPath, options.mounts),
    ...['--symlink', '/tmp', '/var/tmp', '--remount-ro', '/', '--chdir', WORKSPACE, '--info-fd', String(INFO_FD)],
    ...Object.entries(options.environment).flatMap(([name, value]) => ['--setenv', name, value]),
    '--',
    ...options.command,
  ];
}

function systemMounts(): string[] {
  const etc = ETC.map((name) => path.join('/etc', name)).filter((file) => existsSync(file));
  return [
    ...['--ro-bind', '/usr', '/usr'],
    ...ROOT_FOLDERS.map((name) => `/${name}`).flatMap(rootFolder),
    ...etc.flatMap((file) => ['--ro-bind', file, file]),
  ];
}

/** `/bin` is a link to `/usr/bin` on most systems, a folder on others. */
function rootFolder(folder: string): string[] {
  if (!existsSync(folder)) return [];
  return lstatSync(folder).isSymbolicLink()
    ? ['--symlink', readlinkSync(folder), folder]
    : ['--ro-bind', folder, folder];
}

function hostPathLink(hostPath: string | undefined, mounts: readonly Mount[]): string[] {
  if (hostPath === undefined) return [];
  const covered = [
    // A link of ours.
    '/var/tmp',
    '/usr',
    '/etc',
    '/proc',
    '/dev',
    ...ROOT_FOLDERS.map((name) => `/${name}`),
    ...mounts.map((mount) => mount.target),
  ];
  const isCovered = covered.some((folder) => hostPath === folder || hostPath.startsWith(`${folder}/`));
  return isCovered ? [] : ['--symlink', WORKSPACE, hostPath];
}

/**
 * Sources that only root can reach, such as a folder below /root, must be reachable for the sandbox's user, who starts
 * bubblewrap. So root shows them on a stage first: a tmpfs in a mount namespace of this one process. Then the user is
 * dropped, and only then comes bubblewrap.
 */
const STAGE_SCRIPT = `set -e
stage=$1; uid=$2; gid=$3; shift 3
while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift
mount -t tmpfs -o mode=0755,size=1m tmpfs "$stage"
while [ "$1" != -- ]; do
  if [ -d "$2" ]; then mkdir "$stage/$1"; else : > "$stage/$1"; fi
  mount --rbind "$2" "$stage/$1"; shift 2
done; shift
exec setpriv --reuid="$uid" --regid="$gid" --clear-groups --no-new-privs bwrap "$@"`;

export interface StageOptions extends BubblewrapOptions {
  /** What is shown on the stage; every source lies in one of them. Fewer are faster. */
  bases: readonly string[];
  /** An empty folder that everybody may enter. */
  stage: string;
  uid: number;
  gid: number;
  /** `cgroup.procs` files to join. */
  cgroups: readonly string[];
}

/** Command and arguments that start bubblewrap from root. */
export function stagedCommand(options: StageOptions): string[] {
  const { stage, uid, gid, cgroups, bases, mounts } = options;
  const onStage = (source: string): string => {
    const index = bases.findIndex((base) => source === base || source.startsWith(`${base}/`));
    const base = bases[index] ?? '';
    return path.join(stage, String(index), path.relative(base, source));
  };
  const staged = mounts.map((mount) => ({ ...mount, source: onStage(mount.source) }));
  return [
    ...['unshare', '--mount', '--propagation', 'private', '--', '/bin/sh', '-c', STAGE_SCRIPT, 'margay-stage'],
    ...[stage, String(uid), String(gid), ...cgroups, '--'],
    ...[...bases.flatMap((base, index) => [String(index), base]), '--'],
    ...bubblewrapArguments({ ...options, mounts: staged }),
  ];
}
