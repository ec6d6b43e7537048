import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { appendFile, chmod, mkdir, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { FailedPreconditionError, InvalidArgumentError } from '@margay/errors';
import type { sandboxdPb } from '@margay/contracts';

const NAME = /^[^/\0]{1,255}$/;
const SHA256 = /^[0-9a-f]{64}$/;
/** What people attach is smaller by far. */
const MAX_BYTES = 64 * 1024 * 1024;

/** Files that people attached, whole and read-only, in a folder beside the workspace. */
export class Attachments {
  private turn: Promise<unknown> = Promise.resolve();
  /** Files seen whole in this life, by name: commands of the same user may still change them. */
  private readonly whole = new Map<string, string>();

  constructor(private readonly folder: string) {}

  /** Takes the next piece of a file. A piece that is not the next one changes nothing. @returns what is wanted next */
  place(request: sandboxdPb.PlaceAttachmentRequest): Promise<sandboxdPb.PlaceAttachmentResponse> {
    checkRequest(request);
    const placed = this.turn.then(() => this.placeNext(request));
    this.turn = placed.catch(() => undefined); // told to who asked
    return placed;
  }

  private async placeNext({
    name,
    sha256,
    totalBytes,
    offset,
    content,
  }: sandboxdPb.PlaceAttachmentRequest): Promise<sandboxdPb.PlaceAttachmentResponse> {
    const file = path.join(this.folder, name);
    if (await this.isWhole(name, sha256, totalBytes)) return { done: true, nextOffset: totalBytes };
    await this.open();
    try {
      const part = path.join(this.folder, `.${sha256.slice(0, 32)}.part`);
      const held = await sizeOf(part);
      if (held > totalBytes) await rm(part, { force: true });
      else if (offset === held) await appendFile(part, content);
      const size = await sizeOf(part);
      if (size < totalBytes) return { done: false, nextOffset: size };
      if ((await hashOf(part)) !== sha256) {
        await rm(part, { force: true });
        return { done: false, nextOffset: 0 };
      }
      await chmod(part, 0o444);
      await rename(part, file);
      this.whole.set(name, sha256);
      return { done: true, nextOffset: totalBytes };
    } finally {
      await setMode(this.folder, 0o555);
    }
  }

  private async isWhole(name: string, sha256: string, totalBytes: number): Promise<boolean> {
    const file = path.join(this.folder, name);
    if ((await sizeOf(file)) !== totalBytes) return false;
    if (this.whole.get(name) === sha256) return true;
    const isSame = await hashOf(file).then(
      (hash) => hash === sha256,
      () => false, // there is none
    );
    if (isSame) this.whole.set(name, sha256);
    return isSame;
  }

  private async open(): Promise<void> {
    try {
      await mkdir(this.folder, { recursive: true });
    } catch (cause) {
      throw new FailedPreconditionError(
        'attachments_unavailable',
        `This sandbox has no place for attached files: ${this.folder} cannot be made.`,
        { cause },
      );
    }
    await setMode(this.folder, 0o755);
  }
}

function checkRequest({ name, sha256, totalBytes }: sandboxdPb.PlaceAttachmentRequest): void {
  const isName = NAME.test(name) && name !== '.' && name !== '..';
  if (isName && SHA256.test(sha256) && totalBytes <= MAX_BYTES) return;
  throw new InvalidArgumentError('bad_attachment', `"${name}" cannot be placed: its name, hash or size is unusable.`);
}

/** A folder of somebody else's, such as a volume's, keeps its mode. */
async function setMode(folder: string, mode: number): Promise<void> {
  await chmod(folder, mode).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPERM') throw error;
  });
}

function sizeOf(file: string): Promise<number> {
  return stat(file).then(
    ({ size }) => size,
    () => 0,
  );
}

async function hashOf(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer);
  return hash.digest('hex');
}
