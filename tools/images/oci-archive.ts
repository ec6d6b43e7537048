// Writes an image as an archive that `ctr images import`, `podman load`, `skopeo copy oci-archive:` and `docker load`
// read: the OCI image layout, and beside it the list that older engines look for.
// https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md
import { createWriteStream } from 'node:fs';
import { rename } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { folder, text, type Entry } from './entries.ts';
import { sha256, type StoredLayer } from './layers.ts';
import { tar } from './tar.ts';

const EPOCH = '1970-01-01T00:00:00Z';
const TYPE = 'application/vnd.oci.image';
const ARCHITECTURES: Record<string, string> = { x64: 'amd64', arm64: 'arm64' };

/** Settings of the containers of an image, as its specification names them. */
export interface ImageConfig {
  User: string;
  Entrypoint: string[];
  Cmd?: string[];
  Env?: string[];
  WorkingDir?: string;
  ExposedPorts?: Record<string, object>;
  Labels?: Record<string, string>;
}
export interface Image {
  /** `repository:tag`. */
  name: string;
  config: ImageConfig;
}

/** Layers from the lowest on. Returns the digest of the image's manifest. */
export async function writeArchive(image: Image, layers: readonly StoredLayer[], path: string): Promise<string> {
  const platform = { architecture: ARCHITECTURES[process.arch] ?? process.arch, os: 'linux' };
  const config = jsonBlob({
    created: EPOCH,
    ...platform,
    config: image.config,
    rootfs: { type: 'layers', diff_ids: layers.map(({ diffId }) => diffId) },
    history: layers.map(() => ({ created: EPOCH, created_by: 'tools/images.ts' })),
  });
  const manifest = jsonBlob({
    schemaVersion: 2,
    mediaType: `${TYPE}.manifest.v1+json`,
    config: { mediaType: `${TYPE}.config.v1+json`, digest: config.digest, size: config.size },
    layers: layers.map(({ digest, size }) => ({ mediaType: `${TYPE}.layer.v1.tar+gzip`, digest, size })),
  });
  const index = {
    schemaVersion: 2,
    mediaType: `${TYPE}.index.v1+json`,
    manifests: [
      {
        mediaType: `${TYPE}.manifest.v1+json`,
        digest: manifest.digest,
        size: manifest.size,
        platform,
        annotations: {
          'io.containerd.image.name': image.name,
          'org.opencontainers.image.ref.name': image.name.slice(image.name.lastIndexOf(':') + 1),
        },
      },
    ],
  };
  const forDocker = [
    { Config: pathOf(config.digest), RepoTags: [image.name], Layers: layers.map(({ digest }) => pathOf(digest)) },
  ];
  const entries: Entry[] = [
    text('oci-layout', '{"imageLayoutVersion":"1.0.0"}'),
    text('index.json', JSON.stringify(index)),
    text('manifest.json', JSON.stringify(forDocker)),
    folder('blobs'),
    folder('blobs/sha256'),
    ...[config, manifest].map(({ digest, content }) => text(pathOf(digest), content)),
    ...layers.map((layer) => blobOf(layer)),
  ];
  await pipeline(Readable.from(tar(entries)), createWriteStream(`${path}.draft`));
  await rename(`${path}.draft`, path);
  return manifest.digest;
}

const pathOf = (digest: string): string => `blobs/${digest.replace(':', '/')}`;

const blobOf = ({ digest, size, file }: StoredLayer): Entry => ({
  ...{ path: pathOf(digest), kind: 'file', mode: 0o644, uid: 0, gid: 0 },
  ...{ source: file, size },
});

function jsonBlob(value: object): { content: string; digest: string; size: number } {
  const content = JSON.stringify(value);
  return { content, digest: `sha256:${sha256(content)}`, size: Buffer.byteLength(content) };
}
