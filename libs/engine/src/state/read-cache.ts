import type { FileVersion } from '../ports';

interface CachedRead {
  path: string;
  version: FileVersion;
  callId: string;
}

/** Which reads the model holds complete: an unchanged repeat costs one line instead of the text. */
export class ReadCache {
  private readonly reads = new Map<string, CachedRead>();

  find(key: string): CachedRead | undefined {
    return this.reads.get(key);
  }

  add(key: string, read: CachedRead): void {
    this.reads.set(key, read);
  }

  evict(changedFiles: readonly string[]): void {
    for (const [key, { path }] of this.reads)
      if (changedFiles.some((changed) => isSameFile(changed, path))) this.reads.delete(key);
  }
}

/** What a read_file call reads: the same key means the same lines of the same file. */
export function readKey(args: Record<string, unknown>): { key: string; path: string } | undefined {
  const path = args['path'] ?? args['file_path'];
  if (typeof path !== 'string') return undefined;
  return { key: JSON.stringify([path, args['offset'] ?? null, args['limit'] ?? null]), path };
}

/** Tools name files absolutely or relative to the workspace; a false match only costs a repeated read. */
function isSameFile(one: string, other: string): boolean {
  const [a, b] = [one.replace(/^\.\//, ''), other.replace(/^\.\//, '')];
  return a === b || a.endsWith(`/${b}`) || b.endsWith(`/${a}`);
}
