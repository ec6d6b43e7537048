import { bubblewrapArguments, stagedCommand } from './bubblewrap';

const options = {
  mounts: [
    { source: '/data/ws', target: '/workspace', isReadOnly: false },
    { source: '/data/sandboxes/a/trust.pem', target: '/margay/trust.pem', isReadOnly: true },
  ],
  environment: { HOME: '/home/agent' },
  canDisableUserNamespaces: true,
  hasFilter: true,
  command: ['/margay/bin/node', 'x'],
};

/** The arguments that follow an option. */
const after = (args: string[], option: string, count: number): string[][] =>
  args.flatMap((arg, index) => (arg === option ? [args.slice(index + 1, index + 1 + count)] : []));

describe('bubblewrapArguments', () => {
  it('takes all namespaces, clears the environment and leaves the root read-only', () => {
    const args = bubblewrapArguments(options);
    for (const kind of ['user', 'pid', 'ipc', 'uts', 'net']) expect(args).toContain(`--unshare-${kind}`);
    expect(args).toContain('--disable-userns');
    expect(args).toContain('--clearenv');
    expect(after(args, '--remount-ro', 1)).toEqual([['/dev'], ['/']]);
    expect(after(args, '--setenv', 2)).toEqual([['HOME', '/home/agent']]);
    expect(args.slice(-3)).toEqual(['--', '/margay/bin/node', 'x']);
  });

  it('binds writable only what is meant to be', () => {
    expect(after(bubblewrapArguments(options), '--bind', 2)).toEqual([['/data/ws', '/workspace']]);
  });

  it('makes a link of the path outside, unless something else is shown there', () => {
    const links = (hostPath: string): string[][] =>
      after(bubblewrapArguments({ ...options, hostPath }), '--symlink', 2);
    expect(links('/srv/project')).toContainEqual(['/workspace', '/srv/project']);
    expect(links('/usr/src/project')).not.toContainEqual(['/workspace', '/usr/src/project']);
    expect(links('/workspace')).not.toContainEqual(['/workspace', '/workspace']);
  });

  it('leaves out what an older bubblewrap does not know', () => {
    expect(bubblewrapArguments({ ...options, canDisableUserNamespaces: false })).not.toContain('--disable-userns');
  });
});

describe('stagedCommand', () => {
  it('shows the bases on the stage, drops the user, and binds from the stage', () => {
    const args = stagedCommand({
      ...options,
      bases: ['/data/ws', '/data/sandboxes/a'],
      stage: '/tmp/stage',
      uid: 20_001,
      gid: 20_001,
      cgroups: ['/sys/fs/cgroup/pids/x/cgroup.procs'],
    });
    const script = args.indexOf('margay-stage');
    expect(args[0]).toBe('unshare');
    expect(args.slice(script + 1, script + 11)).toEqual([
      ...['/tmp/stage', '20001', '20001', '/sys/fs/cgroup/pids/x/cgroup.procs', '--'],
      ...['0', '/data/ws', '1', '/data/sandboxes/a', '--'],
    ]);
    expect(after(args, '--bind', 2)).toEqual([['/tmp/stage/0', '/workspace']]);
    expect(after(args, '--ro-bind', 2)).toContainEqual(['/tmp/stage/1/trust.pem', '/margay/trust.pem']);
  });
});
