import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DEFAULT_CLASSES, type SandboxClass } from './classes';
import { podOf, volumeClaimOf, type PodRequest, type PodSettings } from './pod-spec';

const settings: PodSettings = {
  install: 'spec',
  image: 'spec.test/sandbox@sha256:0',
  pullPolicy: 'IfNotPresent',
  pullSecrets: ['pull'],
  trust: 'PUBLIC KEYS',
};
const classOf = (name: string): SandboxClass => DEFAULT_CLASSES[name] as SandboxClass;
const request = (more: Partial<PodRequest> = {}): PodRequest => ({
  sandboxId: 'a'.repeat(20),
  namespace: 'test',
  podName: `mg-${'a'.repeat(20)}`,
  className: 'default',
  class: classOf('default'),
  ...more,
});
const bound = { tenantId: 't1', sessionId: 's1', workspaceId: 'w'.repeat(32) };

describe('the pod of a worktree', () => {
  it('shows its folder of the volume as the workspace, and the repository where that looks for it', () => {
    const { spec, metadata } = podOf(request({ volumeName: 'v', bound, subPath: '.margay/worktrees/fix' }), settings);
    const mounts = spec?.containers[0]?.volumeMounts?.filter(({ name }) => name === 'workspace');
    expect(mounts).toEqual([
      { name: 'workspace', mountPath: '/workspace', subPath: '.margay/worktrees/fix' },
      { name: 'workspace', mountPath: '/.git', subPath: '.git' },
    ]);
    expect(metadata?.labels).toMatchObject({ 'margay.dev/workspace-id': bound.workspaceId });
    expect(spec?.affinity?.podAffinity?.requiredDuringSchedulingIgnoredDuringExecution).toHaveLength(1);
  });
});

describe('the pod of a sandbox', () => {
  const { spec, metadata } = podOf(request({ volumeName: 'v' }), settings);
  const [container] = spec?.containers ?? [];

  it('has an identity that is nobody outside, and no account in the cluster', () => {
    expect(spec).toMatchObject({ automountServiceAccountToken: false, enableServiceLinks: false });
    expect(spec?.securityContext).toEqual({
      runAsNonRoot: true,
      runAsUser: 1000,
      runAsGroup: 1000,
      fsGroup: 1000,
      fsGroupChangePolicy: 'OnRootMismatch',
      seccompProfile: { type: 'RuntimeDefault' },
    });
  });

  it('has no privileges, no host and a root that cannot be written', () => {
    expect(container?.securityContext).toMatchObject({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    });
    for (const field of ['hostNetwork', 'hostPID', 'hostIPC']) expect(spec).not.toHaveProperty(field);
    for (const volume of spec?.volumes ?? []) {
      expect(Object.keys(volume).sort()).toEqual(
        volume.name === 'workspace' ? ['name', 'persistentVolumeClaim'] : ['emptyDir', 'name'],
      );
      if (volume.emptyDir) expect(volume.emptyDir.sizeLimit).toMatch(/^\d+[MG]i$/);
    }
  });

  it('has limits of everything, names nothing, and lives until it is deleted', () => {
    expect(container?.resources?.limits).toEqual({ cpu: '1', memory: '2Gi', 'ephemeral-storage': '4952Mi' });
    expect(spec).toMatchObject({ dnsPolicy: 'None', dnsConfig: { nameservers: ['127.0.0.1'] } });
    expect(spec).toMatchObject({ restartPolicy: 'Always', terminationGracePeriodSeconds: 90 });
    expect(container?.startupProbe?.tcpSocket).toEqual({ port: 7777 });
  });

  it('is given public keys and its own UID, and nothing secret', () => {
    const id = container?.env?.find(({ name }) => name === 'MARGAY_SANDBOX_ID');
    expect(id?.valueFrom).toEqual({ fieldRef: { fieldPath: 'metadata.uid' } });
    expect(container?.env?.find(({ name }) => name === 'MARGAY_SANDBOX_TRUST')?.value).toBe('PUBLIC KEYS');
    expect(JSON.stringify(container?.env)).not.toMatch(/secretKeyRef|PRIVATE|PASSWORD|TOKEN/);
  });

  it('names its session only when it has one, in values that labels can hold', () => {
    expect(Object.keys(metadata?.labels ?? {})).not.toContain('margay.dev/session-id');
    const labels = podOf(request({ bound: { ...bound, tenantId: 'Ada & Söhne' } }), settings).metadata?.labels;
    expect(labels).toMatchObject({ 'margay.dev/session-id': 's1', 'margay.dev/egress': 'proxy' });
    expect(labels?.['margay.dev/tenant-id']).toMatch(/^[0-9a-f]{40}$/);
  });

  it('goes where the volume of its workspace is, unless any node can mount that', () => {
    const term = { topologyKey: 'kubernetes.io/hostname' };
    const once = podOf(request({ bound, volumeName: 'v' }), settings);
    const required = once.spec?.affinity?.podAffinity?.requiredDuringSchedulingIgnoredDuringExecution;
    expect(required).toEqual([expect.objectContaining(term)]);
    const many: SandboxClass = { ...classOf('default'), accessMode: 'ReadWriteMany' };
    expect(podOf(request({ bound, volumeName: 'v', class: many }), settings).spec?.affinity).toBeUndefined();
  });

  it('keeps its files in a folder of its own where the class says so', () => {
    const pod = podOf(request({ class: classOf('strict') }), settings);
    expect(pod.spec?.volumes?.[0]).toEqual({ name: 'workspace', emptyDir: { sizeLimit: '1Gi' } });
  });

  it("is held to a number of processes by the kernel only where its user is nobody else's", () => {
    const limitOf = (more: Partial<SandboxClass>) =>
      podOf(request({ class: { ...classOf('default'), ...more } }), settings).spec?.containers[0]?.env?.find(
        ({ name }) => name === 'MARGAY_SANDBOX_PROCESSES',
      )?.value;
    expect([limitOf({}), limitOf({ hostUsers: true }), limitOf({ hostUsers: false })]).toEqual(['0', '0', '512']);
  });

  it('may fill what its volume can become, and no more than its folder', () => {
    const bytesIn = (more: Partial<PodRequest>) =>
      podOf(
        request({ class: { ...classOf('default'), maxWorkspace: '50Gi' }, ...more }),
        settings,
      ).spec?.containers[0]?.env?.find(({ name }) => name === 'MARGAY_SANDBOX_WORKSPACE_BYTES')?.value;
    expect([bytesIn({ volumeName: 'v' }), bytesIn({})]).toEqual([String(50 * 1024 ** 3), String(10 * 1024 ** 3)]);
    const fixed = { class: classOf('default'), volumeName: 'v' };
    expect(bytesIn(fixed)).toBe(String(10 * 1024 ** 3));
  });

  it('has the strict profile in the class strict, and in no other', () => {
    const limitsOf = (className: string) =>
      podOf(request({ className, class: classOf(className) }), settings)
        .spec?.containers[0]?.env?.filter(({ name }) => /PROFILE|_POD_PROCESSES|MEMORY/.test(name))
        .map(({ name, value }) => `${name.replace('MARGAY_SANDBOX_', '')}=${value}`);
    expect(limitsOf('strict')).toEqual([`MEMORY_BYTES=${512 * 1024 ** 2}`, 'POD_PROCESSES=18', 'PROFILE=strict']);
    expect(limitsOf('dense')).toEqual([`MEMORY_BYTES=${1024 ** 3}`, 'POD_PROCESSES=512']);
  });
});

describe('a class with an image of its own', () => {
  const own: SandboxClass = { ...classOf('default'), image: 'spec.test/tools@sha256:1' };
  const { spec } = podOf(request({ class: own, volumeName: 'v' }), settings);
  const [container] = spec?.containers ?? [];
  const [init] = spec?.initContainers ?? [];

  it('is given Node, the daemon and what reaps by our image, where nobody in it can write', () => {
    expect([init?.image, container?.image]).toEqual([settings.image, own.image]);
    expect(init?.command?.slice(0, 2)).toEqual(['/usr/bin/node', '-e']);
    expect(init?.volumeMounts).toEqual([{ name: 'program', mountPath: '/margay/program' }]);
    expect(container?.command).toEqual(['tini', '--', 'node', 'sandboxd.cjs'].map((name) => (name === '--' ? name : `/margay/program/${name}`))); // prettier-ignore
    expect(container?.volumeMounts).toContainEqual({ name: 'program', mountPath: '/margay/program', readOnly: true });
    expect(spec?.volumes).toContainEqual({ name: 'program', emptyDir: { sizeLimit: '256Mi' } });
  });

  it('is copied by a program that runs, and takes along the libraries beside glibc', () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'margay-own-image-'));
    try {
      const given = path.join(folder, 'program');
      mkdirSync(given);
      for (const name of ['tini', 'sandboxd.cjs']) writeFileSync(path.join(folder, name), name, { mode: 0o755 });
      const script = String(init?.command?.[2])
        .replaceAll('/margay/program', given)
        .replace('/usr/bin/tini', path.join(folder, 'tini'))
        .replace('/opt/margay/sandboxd.cjs', path.join(folder, 'sandboxd.cjs'));
      execFileSync(process.execPath, ['-e', script]);
      expect(readdirSync(given).sort()).toEqual(
        ['lib', path.basename(process.execPath), 'sandboxd.cjs', 'tini'].sort(),
      );
      expect(statSync(path.join(given, 'tini')).mode & 0o777).toBe(0o755);
      expect(
        readdirSync(path.join(given, 'lib')).filter((name) => !/^lib(stdc\+\+|gcc_s|atomic)\.so/.test(name)),
      ).toEqual([]);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('is as restricted as any other, before and after', () => {
    const usual = podOf(request({ volumeName: 'v' }), settings).spec?.containers[0];
    for (const one of [init, container]) {
      expect(one?.securityContext).toEqual(usual?.securityContext);
      expect(one?.imagePullPolicy).toBe('IfNotPresent');
      expect(one?.resources?.limits).toEqual({ cpu: '1', memory: '2Gi', 'ephemeral-storage': '5208Mi' });
    }
    expect(spec?.imagePullSecrets).toEqual([{ name: 'pull' }]);
    expect(init).not.toHaveProperty('env');
  });

  it('has nothing copied where the image is ours', () => {
    const ours = podOf(request({ class: { ...own, image: settings.image } }), settings).spec;
    expect(ours).not.toHaveProperty('initContainers');
    expect(ours?.containers[0]).not.toHaveProperty('command');
    expect(JSON.stringify(ours)).not.toContain('program');
  });
});

describe('the volume of a workspace', () => {
  it("carries the workspace's label and never a session's", () => {
    const { metadata, spec } = volumeClaimOf(request({ bound }), 'spec');
    expect(metadata?.labels).toMatchObject({ 'margay.dev/workspace-id': bound.workspaceId });
    expect(metadata?.labels).not.toHaveProperty('margay.dev/session-id');
    expect(spec?.resources?.requests).toEqual({ storage: '10Gi' });
  });
});
