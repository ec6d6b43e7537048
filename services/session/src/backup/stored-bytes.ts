import { createHash } from 'node:crypto';
import { isObjectMissing, type ObjectStore } from '@margay/platform/files';
import { Binary, ObjectId, type Document } from 'mongodb';

/** A file of GridFS, or one whose bytes are in a bucket. */
export interface BackedUpFile extends Document {
  _id: ObjectId;
  length: number;
  chunkSize: number;
  objectKey?: string;
}

/**
 * The bytes of a file in a bucket as the pieces that GridFS would have. Each has the same id in every backup, so that a restore
 * may be repeated. What is missing ends it early.
 */
export async function* piecesOf({ _id, length, chunkSize, objectKey = '' }: BackedUpFile, objects: ObjectStore) {
  let rest = Buffer.alloc(0);
  let n = 0;
  const piece = (data: Buffer): Document => ({ _id: pieceId(_id, n), files_id: _id, n: n++, data: new Binary(data) });
  try {
    for await (const chunk of objects.read(objectKey, 0, length)) {
      rest = Buffer.concat([rest, chunk]);
      for (; rest.length >= chunkSize; rest = rest.subarray(chunkSize)) yield piece(rest.subarray(0, chunkSize));
    }
  } catch (error) {
    if (!isObjectMissing(error)) throw error;
  }
  if (rest.length > 0) yield piece(rest);
}

function pieceId(fileId: ObjectId, n: number): ObjectId {
  return new ObjectId(createHash('sha256').update(`${fileId.toHexString()}/${n}`).digest().subarray(0, 12));
}
