import { realpath, stat } from 'node:fs/promises';
import path from 'node:path';
import { askGit, type GitPlace } from '../git/git';
import { listFiles } from './list-files';
import { openPlain } from './plain-file';

export interface Said {
  text: string;
  attachments: { filename: string; storedName: string }[];
}

export interface ReferencePlace extends GitPlace {
  attachmentsFolder?: string | undefined;
}

const FILES_MAX = 50_000;
const EACH_MAX_CHARS = 16_000;
const ALL_MAX_CHARS = 64_000;
const ENTRIES_MAX = 200;
const REFERENCES_MAX = 100;
/** A character takes at most so many bytes. */
const BYTES_PER_CHAR = 4;
const REFERENCE = /(^|\s)@(\S+)/g;
/** It ends a sentence, not a name. */
const TRAILING = /[.,;:!?]+$/;
const IMAGE = /\.(png|jpe?g|gif|webp|bmp|ico|svg|tiff?)$/i;
const OMITTED = '[omitted: context budget reached]';
const BINARY = '[binary file — not inlined as text]';

interface Body {
  text: string;
  /** More than is shown. */
  chars: number;
}

/**
 * The text with what its references lead to in their places (ext §1.11): files, folders, attached files, and what has
 * changed since the last commit. One that leads nowhere, or stands there a second time, stays as it is.
 */
export async function expandReferences({ text, attachments }: Said, place: ReferencePlace): Promise<string> {
  const workspace = new ReferencedWorkspace(place, attachments);
  const seen = new Set<string>();
  let left = ALL_MAX_CHARS;
  let expanded = '';
  let at = 0;
  for (const match of text.matchAll(REFERENCE)) {
    const [, before = '', word = ''] = match;
    const name = word.replace(TRAILING, '');
    if (name === '' || seen.has(name) || seen.size >= REFERENCES_MAX) continue;
    const body = await workspace.bodyOf(name);
    if (!body) continue;
    seen.add(name);
    const shown = left <= 0 ? OMITTED : cut(body, Math.min(EACH_MAX_CHARS, left));
    left -= shown.length;
    const start = match.index + before.length;
    expanded += `${text.slice(at, start)}\n--- @${name} ---\n${shown}\n--- end @${name} ---\n`;
    at = start + 1 + name.length;
  }
  return expanded + text.slice(at);
}

function cut({ text, chars }: Body, most: number): string {
  if (chars <= most && text.length <= most) return text;
  return `${text.slice(0, most)}\n[truncated: ${most} of ${chars} characters]`;
}

/** What references can lead to; the list of files is made when the first one asks. */
class ReferencedWorkspace {
  private files: Promise<Set<string>> | undefined;

  constructor(
    private readonly place: ReferencePlace,
    private readonly attachments: Said['attachments'],
  ) {}

  /** Undefined: it leads nowhere. */
  async bodyOf(name: string): Promise<Body | undefined> {
    if (name === 'diff' || name === 'git-diff') return this.changes();
    const attached = this.attachments.find(({ filename, storedName }) => filename === name || storedName === name);
    const folder = this.place.attachmentsFolder;
    if (attached && folder !== undefined) return fileBody(path.join(folder, path.basename(attached.storedName)));
    const inside = await this.inside(name);
    if (inside === undefined) return undefined;
    const facts = await stat(path.join(this.place.root, inside)).catch(() => undefined);
    if (facts?.isDirectory()) return this.folder(inside);
    return facts?.isFile() && (await this.listed()).has(inside)
      ? fileBody(path.join(this.place.root, inside))
      : undefined;
  }

  private async changes(): Promise<Body | undefined> {
    const diff = await askGit(this.place, ['diff', '--no-ext-diff', '--no-textconv', 'HEAD']);
    if (diff === undefined) return undefined;
    const text = diff === '' ? '(no uncommitted changes)' : diff;
    return { text, chars: text.length };
  }

  /** Relative to the workspace, links resolved; undefined: it lies outside, or is not there. */
  private async inside(name: string): Promise<string | undefined> {
    try {
      const root = await realpath(this.place.root);
      const relative = path.relative(root, await realpath(path.resolve(root, name)));
      const isOutside = relative.startsWith('..') || path.isAbsolute(relative);
      return isOutside || relative.split('/')[0] === '.git' ? undefined : relative;
    } catch {
      return undefined; // it is not there
    }
  }

  /** What lies right in it, of all files that are listed. */
  private async folder(inside: string): Promise<Body | undefined> {
    const prefix = inside === '' ? '' : `${inside}/`;
    const below = [...(await this.listed())].filter((file) => file.startsWith(prefix));
    if (below.length === 0) return undefined;
    const names = below.map((file) => file.slice(prefix.length)).map((file) => file.replace(/\/.*/, '/'));
    const entries = [...new Set(names)].sort();
    const more = entries.length - ENTRIES_MAX;
    const text = [...entries.slice(0, ENTRIES_MAX), ...(more > 0 ? [`${more} more entries`] : [])].join('\n');
    return { text, chars: text.length };
  }

  private listed(): Promise<Set<string>> {
    this.files ??= listFiles({ ...this.place, limit: FILES_MAX }).then(({ files }) => new Set(files));
    return this.files;
  }
}

async function fileBody(file: string): Promise<Body | undefined> {
  if (IMAGE.test(file)) return note('[image file — not inlined as text]');
  const handle = await openPlain(file);
  if (!handle) return undefined;
  try {
    const { size } = await handle.stat();
    const length = Math.min(size, EACH_MAX_CHARS * BYTES_PER_CHAR);
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(length), 0, length, 0);
    const bytes = buffer.subarray(0, bytesRead);
    if (bytes.includes(0)) return note(BINARY);
    const text = bytes.toString('utf8');
    return { text, chars: size > bytesRead ? Math.max(size, text.length) : text.length };
  } finally {
    await handle.close();
  }
}

const note = (text: string): Body => ({ text, chars: text.length });
