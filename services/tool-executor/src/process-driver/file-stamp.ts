import { createHash } from 'node:crypto';
import { statSync } from 'node:fs';

/** Changes when the file, or the Node that runs it, does. */
export function fileStamp(file: string): string {
  const { mtimeMs, size } = statSync(file);
  return createHash('sha256').update(`${file} ${mtimeMs} ${size} ${process.version}`).digest('hex').slice(0, 12);
}
