// Which images there are, and what is in them. The Dockerfile makes the first two of the same parts.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { debianLayer } from './debian.ts';
import { file, folder, SKELETON, text, USER, type Entry } from './entries.ts';
import type { Layer } from './layers.ts';
import type { Image, ImageConfig } from './oci-archive.ts';
import { CERTIFICATES, libraries, NODE_PATH, nodeRuntime, users } from './node-runtime.ts';

const PATH = 'PATH=/usr/local/bin:/usr/bin:/bin';
const owned = (path: string): Entry => folder(path, 0o755, USER);
const bundled = (root: string, names: readonly string[]): Entry[] => [
  ...names.map((name) => file(`opt/margay/${name}`, join(root, 'dist', name))),
  file('usr/share/doc/margay/LICENSE', join(root, 'LICENSE')),
];

/** A program of this machine; `version` as it says itself. */
interface Program {
  version: string;
  path: string;
}
export interface ImageContext {
  /** Of this repository. */
  root: string;
  version: string;
  cacheFolder: string;
  progress(line: string): void;
  nats(): Promise<Program>;
  store(): Promise<Program & { engine: string }>;
}
export interface ImageDefinition extends Image {
  /** From the lowest on. */
  layers: readonly Layer[];
}

export const IMAGES: Record<string, (context: ImageContext) => Promise<ImageDefinition>> = {
  margay,
  'margay-sandbox': sandbox,
  nats,
  store,
  plain,
};

/** Our files of an image, which the Dockerfile lays into one. */
export const ROOTFS: Record<string, (root: string) => Entry[]> = {
  margay: (root) => [...nodeRuntime(), ...margayFiles(root)],
  'margay-sandbox': (root) => [...sandboxNode(), ...sandboxFiles(root)],
};

/** All services, chosen by `--services`; sandboxd is there for sandboxes with an image of their own. */
async function margay({ root, version }: ImageContext): Promise<ImageDefinition> {
  return {
    name: `local.test/margay:${version}`,
    config: {
      User: '1000:1000',
      Env: [PATH, 'NODE_ENV=production', 'HOME=/tmp', 'SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt'],
      Entrypoint: [`/${NODE_PATH}`, '/opt/margay/margay.cjs'],
      WorkingDir: '/tmp',
      ExposedPorts: { '8080/tcp': {}, '9090/tcp': {}, '9464/tcp': {} },
      Labels: labels(version, 'Margay', 'All services of Margay'),
    },
    layers: [{ entries: nodeRuntime() }, { entries: margayFiles(root) }],
  };
}

const margayFiles = (root: string): Entry[] =>
  bundled(root, ['margay.cjs', 'kubernetes-client.cjs', 'sandboxd.cjs', 'cli.cjs']);

async function sandbox({ root, version, cacheFolder, progress }: ImageContext): Promise<ImageDefinition> {
  const packages = (await readFile(join(root, 'tools/images/sandbox-packages.txt'), 'utf8')).trim().split('\n');
  return {
    name: `local.test/margay-sandbox:${version}`,
    config: sandboxConfig(version),
    layers: [
      await debianLayer(packages, cacheFolder, progress),
      { entries: sandboxNode() },
      { entries: sandboxFiles(root) },
    ],
  };
}

export const sandboxConfig = (version: string): ImageConfig => ({
  User: '1000:1000',
  Env: [PATH, 'HOME=/home/agent', 'LANG=C.UTF-8', 'GIT_TERMINAL_PROMPT=0'],
  // The daemon is no init: what its commands leave behind is reaped by tini.
  Entrypoint: ['/usr/bin/tini', '--', `/${NODE_PATH}`, '/opt/margay/sandboxd.cjs'],
  WorkingDir: '/workspace',
  ExposedPorts: { '7777/tcp': {} },
  Labels: { ...labels(version, 'Margay sandbox', 'Where agents of Margay work'), 'dev.margay.lsp': '' },
});

const sandboxNode = (): Entry[] => [file(NODE_PATH, process.execPath, 0o755)];

const sandboxFiles = (root: string): Entry[] => [
  ...users('agent', '/home/agent', '/bin/bash'),
  CERTIFICATES,
  // A volume's folder belongs to whoever made it, and git would refuse to look into it.
  text('etc/gitconfig', '[safe]\n\tdirectory = *\n'),
  owned('home/agent'),
  owned('workspace'),
  ...['', '/attachments', '/results', '/plan', '/plugins', '/run'].map((path) => owned(`margay${path}`)),
  ...bundled(root, ['sandboxd.cjs']),
];

/** The broker of this machine where the official image cannot be had: the same program at the same place. */
async function nats(context: ImageContext): Promise<ImageDefinition> {
  const { path, version } = await context.nats();
  return {
    name: 'local.test/nats:dev',
    config: {
      User: '1000:1000',
      Entrypoint: ['/nats-server'],
      ExposedPorts: { '4222/tcp': {}, '8222/tcp': {} },
      Labels: labels(version, 'NATS for tests', 'The NATS server of a development machine'),
    },
    layers: [{ entries: [...SKELETON, ...libraries(path), owned('data'), file('nats-server', path, 0o755)] }],
  };
}

/** The document store of this machine where MongoDB's image cannot be had; for tests only. */
async function store(context: ImageContext): Promise<ImageDefinition> {
  const { engine, version, path } = await context.store();
  return {
    name: 'local.test/store:dev',
    config: {
      User: '1000:1000',
      Entrypoint: ['/usr/bin/store'],
      Cmd: STORE_ARGUMENTS[engine] ?? [],
      WorkingDir: '/data/db',
      ExposedPorts: { '27017/tcp': {} },
      Labels: {
        ...labels(version, 'Document store for tests', `${engine} of a development machine`),
        'dev.margay.engine': engine,
      },
    },
    layers: [{ entries: [...SKELETON, ...libraries(path), owned('data/db'), file('usr/bin/store', path, 0o755)] }],
  };
}

/** Someone else's image, as a class of sandboxes may name it: a shell and its usual programs, nothing of ours; for tests only. */
async function plain({ version, cacheFolder, progress }: ImageContext): Promise<ImageDefinition> {
  const packages = ['base-files', 'bash', 'coreutils', 'dash', 'debianutils'];
  return {
    name: 'local.test/plain:dev',
    config: {
      User: '1000:1000',
      Env: [PATH],
      Entrypoint: ['/usr/bin/bash'],
      Labels: labels(version, 'Plain', 'A shell, for tests'),
    },
    layers: [await debianLayer(packages, cacheFolder, progress)],
  };
}

/** Listening on all addresses of a pod, whose network is its own. */
const STORE_ARGUMENTS: Record<string, string[]> = {
  'secantusd-rs': [
    ...['--host', '0.0.0.0', '--port', '27017', '--storage-path', '/data/db', '--sync-on-commit'],
    ...['--cache-size', '256M', '--log-file-max', '16MB', '--log-level', 'ERROR'],
  ],
  mongod: ['--bind_ip_all', '--port', '27017', '--dbpath', '/data/db', '--replSet', 'rs0'],
};

const labels = (version: string, title: string, description: string): Record<string, string> => ({
  'org.opencontainers.image.title': title,
  'org.opencontainers.image.description': description,
  'org.opencontainers.image.version': version,
  'org.opencontainers.image.licenses': 'Apache-2.0',
});
