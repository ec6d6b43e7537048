// The pinned Node, the libraries it is linked to and what programs expect to find in /etc: the lowest layer of images
// without a distribution. There is no shell and no package manager in it.
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { rootCertificates } from 'node:tls';
import { existing, file, folder, inUsr, SKELETON, text, type Entry } from './entries.ts';

export const NODE_PATH = 'usr/bin/node';
/** The certificates that this Node trusts, for programs that read a file. */
export const CERTIFICATES = text('etc/ssl/certs/ca-certificates.crt', `${rootCertificates.join('\n')}\n`);

/** Which users an image knows; `home` is that of user 1000. */
export const users = (name: string, home: string, shell: string): Entry[] => [
  text('etc/passwd', `root:x:0:0:root:/:/usr/sbin/nologin\n${name}:x:1000:1000::${home}:${shell}\n`),
  text('etc/group', `root:x:0:\n${name}:x:1000:\n`),
  text('etc/nsswitch.conf', 'passwd: files\ngroup: files\nhosts: files dns\n'),
];

/** `node` is the program that runs this file: prepare.mjs sees to it that it is the pinned one. */
export function nodeRuntime(node = process.execPath): Entry[] {
  const licence = existing([join(dirname(node), '../LICENSE')]);
  return [
    ...SKELETON,
    ...users('margay', '/tmp', '/usr/sbin/nologin'),
    CERTIFICATES,
    file(NODE_PATH, node, 0o755),
    ...libraries(node),
    ...licence.map((path) => file('usr/share/doc/nodejs/LICENSE', path)),
    folder('opt/margay'),
  ];
}

/** The shared libraries of a program of this machine, and those by which glibc looks up names. */
export function libraries(program: string): Entry[] {
  const linked = linkedLibraries(program);
  const libc = linked.find((path) => /\/libc\.so\.6$/.test(path));
  const lookup = ['libnss_dns.so.2', 'libnss_files.so.2', 'libresolv.so.2'];
  const besides = libc ? existing(lookup.map((name) => join(dirname(libc), name))) : [];
  return [...new Set([...linked, ...besides])].map((path) => file(inUsr(path), path, 0o755));
}

function linkedLibraries(program: string): string[] {
  const { stdout, stderr, error, status } = spawnSync('ldd', [program], { encoding: 'utf8' });
  if (/not a dynamic executable/.test(stdout + stderr)) return [];
  if (status !== 0) throw error ?? new Error(`ldd ${program} failed: ${stderr.trim()}`);
  return [...stdout.matchAll(/\s(\/\S+)/g)].map(([, path]) => path ?? '');
}
