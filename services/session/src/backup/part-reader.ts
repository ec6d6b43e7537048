import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { pipeline } from 'node:stream/promises';
import * as zlib from 'node:zlib';
import { FailedPreconditionError } from '@margay/errors';
import { itemOf, type BackupItem, type Part } from './backup-format';
import { requireZstd } from './part-writer';

/** Items of a part, after its file was compared with its hash. @throws FailedPreconditionError `backup_damaged` */
export async function* readPart(folder: string, part: Part): AsyncIterable<BackupItem> {
  requireZstd();
  const path = join(folder, part.file);
  if ((await sha256Of(path)) !== part.sha256) throw damaged(path);
  const text = createReadStream(path).pipe(zlib.createZstdDecompress());
  let documents = 0;
  for await (const line of createInterface({ input: text, crlfDelay: Infinity })) {
    documents += 1;
    yield itemOf(line);
  }
  if (documents !== part.documents) throw damaged(path);
}

async function sha256Of(path: string): Promise<string | undefined> {
  const hash = createHash('sha256');
  try {
    await pipeline(createReadStream(path), hash);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  return hash.digest('hex');
}

function damaged(path: string): Error {
  return new FailedPreconditionError(
    'backup_damaged',
    `${path} is missing or not what was written; use another backup.`,
  );
}
