import { createHash, randomBytes } from 'node:crypto';
import {
  chmod,
  chown,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readlink,
  rename,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { removeTree } from '@margay/toolbox';

/** A socket's path may have 107 bytes; what follows the base needs 34. */
const MAX_BASE_LENGTH = 70;
const SHORT_PREFIX = 'margay-';
const LINK = 's';
/** Certificate of the egress proxy's authority. */
export const AUTHORITY_FILE = 'ca.pem';
/** Of these the sandbox's user is the owner. */
const OWN_FOLDERS = ['run', 'state', 'results', 'attachments', 'home', 'tmp'] as const;

export interface User {
  uid: number;
  gid: number;
}

/** One sandbox for each session and class; the id is the same in every life of it. */
export function sandboxIdOf(sessionId: string): string {
  return createHash('sha256').update(`s/${sessionId}/default`).digest('hex').slice(0, 20);
}

/** The files of one sandbox on the host, below `$MARGAY_HOME/sandboxes/<id>`. */
export class SandboxFolder {
  readonly path: string;

  constructor(
    base: string,
    readonly sandboxId: string,
  ) {
    this.path = path.join(base, sandboxId);
  }

  file(name: string): string {
    return path.join(this.path, name);
  }

  /** Makes what is missing and gives it to the sandbox's user. */
  async prepare(user: User, trust: string, authority?: string): Promise<void> {
    await mkdir(this.path, { recursive: true, mode: 0o711 });
    for (const name of OWN_FOLDERS) {
      await mkdir(this.file(name), { recursive: true, mode: 0o700 });
      // Its user may have locked itself out.
      await chmod(this.file(name), 0o700);
      if (process.getuid?.() === 0) await chown(this.file(name), user.uid, user.gid);
    }
    await writeFile(this.file('trust.pem'), trust, { mode: 0o644 });
    if (authority !== undefined) await writeFile(this.file(AUTHORITY_FILE), authority, { mode: 0o644 });
    await writeFile(this.file('passwd'), `agent:x:${user.uid}:${user.gid}:agent:/home/agent:/bin/bash\n`);
    await writeFile(this.file('group'), `agent:x:${user.gid}:\n`);
    await writeFile(this.file('hosts'), '127.0.0.1 localhost sandbox\n');
  }

  /** Removes the journal and everything temporary; the record stays. */
  async forget(): Promise<void> {
    for (const name of OWN_FOLDERS) await this.discard(name);
  }

  /** Removes what the daemon keeps, so that the next one is another incarnation. */
  async forgetJournal(): Promise<void> {
    for (const name of ['run', 'state']) await this.discard(name);
  }

  /** The name is free afterwards, even if something in the folder cannot be removed. */
  private async discard(name: string): Promise<void> {
    const trash = this.file(`${name}-${randomBytes(4).toString('hex')}`);
    try {
      await rename(this.file(name), trash);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
      throw error;
    }
    await removeTree(trash).catch(() => undefined); // goes with the record
  }
}

/** The same folder under a name short enough for sockets. */
export async function shortName(base: string): Promise<{ base: string; remove: () => Promise<void> }> {
  if (base.length <= MAX_BASE_LENGTH) return { base, remove: async () => undefined };
  const folder = (await leftName(base)) ?? (await newName(base));
  return { base: path.join(folder, LINK), remove: () => rm(folder, { recursive: true, force: true }) };
}

async function newName(base: string): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), SHORT_PREFIX));
  await symlink(base, path.join(folder, LINK));
  return folder;
}

/** The name that an earlier life made for this base and, killed, could not remove; nobody else's. */
async function leftName(base: string): Promise<string | undefined> {
  const names = (await readdir(tmpdir())).filter((name) => name.startsWith(SHORT_PREFIX));
  for (const folder of names.map((name) => path.join(tmpdir(), name))) {
    const facts = await lstat(folder).catch(() => undefined);
    const isOwn = facts?.isDirectory() && facts.uid === process.getuid?.() && (facts.mode & 0o022) === 0;
    if (isOwn && (await readlink(path.join(folder, LINK)).catch(() => '')) === base) return folder;
  }
  return undefined;
}
