/**
 * Paths below the workspace, one character per byte (latin1): file names need not be UTF-8, and no two names may become one.
 */
export type ArchivePath = string;

/** As the file system takes it. */
export const bytesOf = (path: ArchivePath): Buffer => Buffer.from(path, 'latin1');

/** UTF-8 as it is; anything else as NUL, which no name holds, and base64. */
export function textOf(path: ArchivePath): string {
  const bytes = bytesOf(path);
  const text = bytes.toString('utf8');
  return Buffer.from(text, 'utf8').equals(bytes) ? text : `\0${bytes.toString('base64')}`;
}

/** The reverse of `textOf`. */
export function pathOf(text: string): ArchivePath {
  const bytes = text.startsWith('\0') ? Buffer.from(text.slice(1), 'base64') : Buffer.from(text, 'utf8');
  return bytes.toString('latin1');
}

/** Whether it names something below the folder it is meant for, whatever lies there. */
export function isInside(path: ArchivePath): boolean {
  if (path === '' || path.includes('\0') || path.startsWith('/')) return false;
  return path.split('/').every((part) => part !== '' && part !== '.' && part !== '..');
}

export const joined = (folder: ArchivePath, name: string): ArchivePath => (folder === '' ? name : `${folder}/${name}`);

/** Empty for what lies at the top. */
export function parentOf(path: ArchivePath): ArchivePath {
  const at = path.lastIndexOf('/');
  return at < 0 ? '' : path.slice(0, at);
}
