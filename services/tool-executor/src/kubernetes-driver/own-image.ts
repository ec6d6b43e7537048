import type { SandboxClass } from './classes';

/** Where an image that is not ours finds Node, the daemon and the process that reaps; nobody in the sandbox can write there. */
const FOLDER = '/margay/program';
const VOLUME = { name: 'program', mountPath: FOLDER };
/** Node takes half of it. */
const PROGRAM_SIZE = '256Mi';

/** Run by the Node of our own image. The libraries are those that Node is linked to and glibc does not bring. */
const COPY = `
const { copyFileSync, mkdirSync } = require('node:fs');
const { basename } = require('node:path');
const give = (file, folder) => copyFileSync(file, folder + '/' + basename(file));
for (const file of ['/usr/bin/tini', process.execPath, '/opt/margay/sandboxd.cjs']) give(file, '${FOLDER}');
mkdirSync('${FOLDER}/lib', { recursive: true });
for (const file of process.report.getReport().sharedObjects)
  if (/\\/lib(stdc\\+\\+|gcc_s|atomic)\\.so/.test(file)) give(file, '${FOLDER}/lib');
`.trim();

/** What a pod has beside the usual where its class names an image of its own (cluster §1.6). */
export interface OwnImageParts {
  /** Run before the sandbox, in our image. */
  init: { name: string; command: string[]; volumeMounts: (typeof VOLUME)[] };
  command: string[];
  environment: Record<string, string>;
  mount: typeof VOLUME & { readOnly: true };
  volume: { name: string; emptyDir: { sizeLimit: string } };
  /** Of the node's disk. */
  size: string;
}

/** @returns undefined where the image is ours, which has all of it */
export function ownImageParts({ image }: SandboxClass, ourImage: string): OwnImageParts | undefined {
  if (image === undefined || image === ourImage) return undefined;
  return {
    init: { name: 'program', command: ['/usr/bin/node', '-e', COPY], volumeMounts: [VOLUME] },
    command: [`${FOLDER}/tini`, '--', `${FOLDER}/node`, `${FOLDER}/sandboxd.cjs`],
    // For the daemon alone: commands get an environment of their own.
    environment: { LD_LIBRARY_PATH: `${FOLDER}/lib` },
    mount: { ...VOLUME, readOnly: true },
    volume: { name: VOLUME.name, emptyDir: { sizeLimit: PROGRAM_SIZE } },
    size: PROGRAM_SIZE,
  };
}
