import { chmodSync, copyFileSync, existsSync, mkdirSync, renameSync, statSync } from 'node:fs';
import path from 'node:path';
import { fileStamp } from './file-stamp';

const OTHERS_ENTER = 0o001;
const OTHERS_READ = 0o004;

/** The part of a path that keeps every other user out; undefined when they can get there. */
export function obstacleOf(target: string): string | undefined {
  const { mode } = statSync(target);
  const isFile = !statSync(target).isDirectory();
  if (isFile && (mode & OTHERS_READ) === 0) return target;
  for (let folder = isFile ? path.dirname(target) : target; ; folder = path.dirname(folder)) {
    if ((statSync(folder).mode & OTHERS_ENTER) === 0) return folder;
    if (folder === path.dirname(folder)) return undefined;
  }
}

/** The file itself where other users can read it, else a copy in a folder where they can. */
export function reachableFile(file: string, folder: string): string {
  if (obstacleOf(file) === undefined) return file;
  const copy = path.join(folder, `${fileStamp(file)}-${path.basename(file)}`);
  if (existsSync(copy)) return copy;
  mkdirSync(folder, { recursive: true, mode: 0o755 });
  copyFileSync(file, `${copy}.new`);
  chmodSync(`${copy}.new`, 0o755);
  renameSync(`${copy}.new`, copy);
  return copy;
}
