import type { Readable } from 'node:stream';
import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import { InvalidArgumentError } from '@margay/errors';
import type { FastifyRequest } from 'fastify';
import { requirePlainBody } from './broken-requests';
import { operationOf } from './operation';

/** A file of an upload. */
export interface UploadedFile {
  name: string;
  contentType: string;
  content: Buffer;
}

export interface Upload {
  files: UploadedFile[];
  fields: Record<string, string>;
}

/** The parts of a multipart body: files under `files` or `file`, and text fields. Throws `bad_request`. */
export const FromUpload = createParamDecorator((_: unknown, context: ExecutionContext) => {
  const request = context.switchToHttp().getRequest<FastifyRequest>();
  return uploadOf(request);
});

/** Collects a multipart body, as far as its route takes it. @throws InvalidArgumentError `too_large` */
export async function readUpload(request: FastifyRequest, payload: Readable, usualMaxBytes: number): Promise<Buffer> {
  requirePlainBody(request);
  const maxBytes = operationOf(request)?.uploadMaxBytes ?? usualMaxBytes;
  const tooLarge = new InvalidArgumentError('too_large', `the body is larger than ${maxBytes} bytes`);
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) {
    // Clients read no answer before they have sent everything.
    payload.resume();
    throw tooLarge;
  }
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of payload as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes <= maxBytes) chunks.push(chunk);
  }
  if (bytes > maxBytes) throw tooLarge;
  return Buffer.concat(chunks);
}

async function uploadOf({ body, headers }: FastifyRequest): Promise<Upload> {
  const upload: Upload = { files: [], fields: {} };
  for (const [name, value] of await partsOf(body, headers['content-type'] ?? '')) {
    if (typeof value === 'string') upload.fields[name] = value;
    else if (name === 'files' || name === 'file') upload.files.push(await fileOf(value));
  }
  return upload;
}

/** No body at all has no parts. */
async function partsOf(body: unknown, contentType: string): Promise<Iterable<[string, string | File]>> {
  if (!Buffer.isBuffer(body) || body.length === 0) return [];
  if (!/^multipart\/form-data\b/i.test(contentType))
    throw new InvalidArgumentError('bad_request', "Invalid input: send 'files' as multipart/form-data");
  try {
    const form = await new Response(new Uint8Array(body), { headers: { 'content-type': contentType } }).formData();
    return form as unknown as Iterable<[string, string | File]>;
  } catch (cause) {
    throw new InvalidArgumentError('bad_request', 'Invalid input: the body is not valid multipart/form-data', {
      cause,
    });
  }
}

async function fileOf(file: File): Promise<UploadedFile> {
  return { name: file.name, contentType: file.type, content: Buffer.from(await file.arrayBuffer()) };
}
