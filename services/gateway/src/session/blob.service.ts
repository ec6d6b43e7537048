import { Readable } from 'node:stream';
import { Injectable } from '@nestjs/common';
import type { sessionsPb } from '@margay/contracts';
import { NotFoundError } from '@margay/errors';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { unsatisfiable, type ByteRange } from './byte-range';

type Messages = AsyncIterator<sessionsPb.ReadBlobResponse>;

const BLOB_ID = /^[0-9a-f]{64}$/;

/** Long texts that events only preview. */
@Injectable()
export class BlobService {
  constructor(private readonly backends: Backends) {}

  async read(caller: Caller, sessionId: string, blobId: string, range: ByteRange | undefined): Promise<Answer> {
    if (!BLOB_ID.test(blobId)) throw new NotFoundError('blob_not_found', `blob ${blobId} not found`);
    const { offset, length } = await this.absolute(caller, sessionId, blobId, range);
    const messages = this.open(caller, { sessionId, blobId, offset, length });
    const first = await messages.next();
    const totalBytes = first.done ? 0 : first.value.totalBytes;
    if (range && offset >= totalBytes) throw unsatisfiable(totalBytes);
    const body = Readable.from(chunks(first.done ? Buffer.alloc(0) : first.value.chunk, messages), {
      objectMode: false,
    });
    const end = length === 0 ? totalBytes : Math.min(totalBytes, offset + length);
    const headers = { ...HEADERS, 'content-length': String(end - offset), etag: `"${blobId}"` };
    if (!range) return new Answer(200, body, headers);
    return new Answer(206, body, { ...headers, 'content-range': `bytes ${offset}-${end - 1}/${totalBytes}` });
  }

  /** A range counted from the end needs the size first. */
  private async absolute(caller: Caller, sessionId: string, blobId: string, range: ByteRange | undefined) {
    if (!range) return { offset: 0, length: 0 };
    if (!('suffix' in range)) return range;
    const messages = this.open(caller, { sessionId, blobId, offset: 0, length: 1 });
    const first = await messages.next();
    await messages.return?.();
    const totalBytes = first.done ? 0 : first.value.totalBytes;
    if (range.suffix === 0) throw unsatisfiable(totalBytes);
    return { offset: Math.max(0, totalBytes - range.suffix), length: 0 };
  }

  private open({ call }: Caller, request: sessionsPb.ReadBlobRequest): Messages {
    return this.backends.sessions.readBlob(request, call)[Symbol.asyncIterator]();
  }
}

/** Text of others: never a document of our origin. Its name is its content, so it may be kept. */
const HEADERS = {
  'content-type': 'text/plain; charset=utf-8',
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; sandbox",
  'cache-control': 'private, max-age=31536000, immutable',
  'accept-ranges': 'bytes',
};

async function* chunks(first: Buffer, rest: Messages): AsyncGenerator<Buffer> {
  try {
    if (first.length > 0) yield first;
    for (let next = await rest.next(); !next.done; next = await rest.next()) yield next.value.chunk;
  } finally {
    await rest.return?.();
  }
}
