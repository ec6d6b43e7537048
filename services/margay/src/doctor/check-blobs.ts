import { randomBytes } from 'node:crypto';
import { isMargayError } from '@margay/errors';
import type { BlobConfig } from '@margay/platform';
import { fault, ok, reasonOf, warning, type Finding } from './finding';

const BYTES = 64 * 1024;
const RULE_FIX =
  'add a lifecycle rule that aborts incomplete multipart uploads after 2 days: what a crash leaves costs money, and may not be listed';

/** The bucket, where there is one: an object is written, read and removed. */
export async function checkBlobs(config: BlobConfig): Promise<Finding[]> {
  if (config.MARGAY_BLOB_DRIVER === 'gridfs') return [];
  const { openObjects } = await import('@margay/platform/files');
  try {
    const objects = await openObjects(config);
    if (!objects) return [];
    try {
      return [await tryOut(objects), await ruleFinding(objects)];
    } finally {
      objects.close();
    }
  } catch (error) {
    const fix = isMargayError(error) ? 'as it says' : 'check MARGAY_S3_ENDPOINT and MARGAY_S3_BUCKET';
    return [fault('blobs.bucket', reasonOf(error), fix)];
  }
}

type Objects = NonNullable<Awaited<ReturnType<typeof import('@margay/platform/files').openObjects>>>;

async function tryOut(objects: Objects): Promise<Finding> {
  const key = `margay_doctor/${randomBytes(8).toString('hex')}`;
  const bytes = randomBytes(BYTES);
  const startedAt = performance.now();
  await objects.write(key, once(bytes));
  try {
    const read: Uint8Array[] = [];
    for await (const chunk of objects.read(key, 0, BYTES)) read.push(chunk);
    if (!Buffer.concat(read).equals(bytes)) return fault('blobs.bucket', 'other bytes came back than were written', 'use another server'); // prettier-ignore
  } finally {
    await objects.remove(key);
  }
  const ms = Math.round(performance.now() - startedAt);
  return ok('blobs.bucket', `${objects.bucket} at ${objects.place}: written, read and removed in ${ms} ms`);
}

async function ruleFinding(objects: Objects): Promise<Finding> {
  const rule = await objects.unfinishedRule();
  if (rule === 'missing')
    return warning('blobs.unfinished', 'no rule of the bucket removes unfinished uploads', RULE_FIX);
  const detail = rule === 'set' ? 'a rule of the bucket removes unfinished uploads' : 'whether a rule removes unfinished uploads can not be read'; // prettier-ignore
  return ok('blobs.unfinished', detail);
}

async function* once(bytes: Buffer): AsyncIterable<Uint8Array> {
  yield bytes;
}
