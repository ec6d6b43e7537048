import { createHash, randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** What it was asked, and by whom it was signed. */
export interface S3Request {
  method: string;
  key: string;
  query: URLSearchParams;
  accessKeyId: string;
  bytes: Buffer;
}

export interface S3Refusal {
  status: number;
  code: string;
}

/**
 * For specs: a server that speaks as much of the protocol of S3 as Margay does, on loopback, with one bucket. It compares the
 * hash that a body is signed with, but no signatures. The suite of the object store also runs against a real server.
 */
export class FakeS3 {
  readonly bucket = 'margay';
  readonly accessKeyId = 'spec-key';
  readonly objects = new Map<string, Buffer>();
  /** Parts by id of their upload. */
  readonly uploads = new Map<string, { key: string; parts: Map<number, Buffer> }>();
  readonly asked: S3Request[] = [];
  lifecycle: string | undefined;
  /** What it answers instead; asked for each request. */
  refuse: (request: S3Request) => S3Refusal | undefined = () => undefined;
  /** Bytes of an object after which the connection breaks. */
  breaksAfter: number | undefined;
  private server?: Server;

  async start(): Promise<this> {
    this.server = createServer((request, response) => void this.serve(request, response));
    await new Promise<void>((resolve) => this.server?.listen(0, '127.0.0.1', resolve));
    return this;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server?.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.server?.closeAllConnections();
    await new Promise<unknown>((resolve) => this.server?.close(resolve));
  }

  private async serve(message: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(message.url ?? '/', this.url);
    const [, bucket = '', ...path] = url.pathname.split('/').map(decodeURIComponent);
    const chunks: Buffer[] = [];
    for await (const chunk of message) chunks.push(chunk as Buffer);
    const bytes = Buffer.concat(chunks);
    const accessKeyId = /Credential=([^/]+)\//.exec(message.headers.authorization ?? '')?.[1] ?? '';
    const request = { method: message.method ?? '', key: path.join('/'), query: url.searchParams, accessKeyId, bytes };
    this.asked.push(request);
    const refusal = this.refuse(request) ?? this.fault(request, bucket, message);
    if (refusal) return fail(response, refusal);
    if (request.query.has('uploads') || request.query.has('uploadId')) return this.multipart(request, response);
    if (request.key === '') return this.ofBucket(request, response);
    this.object(request, response, message.headers.range);
  }

  private fault(
    { accessKeyId, bytes }: S3Request,
    bucket: string,
    { headers }: IncomingMessage,
  ): S3Refusal | undefined {
    if (accessKeyId !== this.accessKeyId) return { status: 403, code: 'InvalidAccessKeyId' };
    if (bucket !== this.bucket) return { status: 404, code: 'NoSuchBucket' };
    const signed = headers['x-amz-content-sha256'];
    if (signed !== createHash('sha256').update(bytes).digest('hex'))
      return { status: 400, code: 'XAmzContentSHA256Mismatch' };
    return undefined;
  }

  private object({ method, key, bytes }: S3Request, response: ServerResponse, range: string | undefined): void {
    if (method === 'PUT') {
      this.objects.set(key, bytes);
      return void response.setHeader('ETag', etag(bytes)).end();
    }
    if (method === 'DELETE') {
      this.objects.delete(key);
      return void response.writeHead(204).end();
    }
    const object = this.objects.get(key);
    if (!object) return fail(response, { status: 404, code: 'NoSuchKey' });
    const [, first = '0', last = ''] = /^bytes=(\d+)-(\d*)$/.exec(range ?? '') ?? [];
    const part = object.subarray(Number(first), last === '' ? object.length : Number(last) + 1);
    if (part.length === 0) return fail(response, { status: 416, code: 'InvalidRange' });
    response.writeHead(206, { 'content-length': part.length, etag: etag(object) });
    if (this.breaksAfter === undefined) return void response.end(part);
    response.write(part.subarray(0, this.breaksAfter), () => response.destroy());
  }

  private multipart({ method, key, query, bytes }: S3Request, response: ServerResponse): void {
    const uploadId = query.get('uploadId') ?? '';
    const upload = this.uploads.get(uploadId);
    if (query.has('uploads')) return method === 'POST' ? this.begin(key, response) : this.list(query, response);
    if (!upload) return fail(response, { status: 404, code: 'NoSuchUpload' });
    if (method === 'PUT') {
      upload.parts.set(Number(query.get('partNumber')), bytes);
      return void response.setHeader('ETag', etag(bytes)).end();
    }
    this.uploads.delete(uploadId);
    if (method === 'DELETE') return void response.writeHead(204).end();
    const numbers = [...bytes.toString().matchAll(/<PartNumber>(\d+)</g)].map(([, number]) => Number(number));
    this.objects.set(key, Buffer.concat(numbers.map((number) => upload.parts.get(number) ?? Buffer.alloc(0))));
    answer(response, `<CompleteMultipartUploadResult><Key>${key}</Key></CompleteMultipartUploadResult>`);
  }

  private begin(key: string, response: ServerResponse): void {
    const uploadId = randomUUID();
    this.uploads.set(uploadId, { key, parts: new Map() });
    answer(response, `<InitiateMultipartUploadResult><UploadId>${uploadId}</UploadId></InitiateMultipartUploadResult>`);
  }

  private list(query: URLSearchParams, response: ServerResponse): void {
    const those = [...this.uploads].filter(([, { key }]) => key.startsWith(query.get('prefix') ?? ''));
    const rows = those.map(([id, { key }]) => `<Upload><Key>${key}</Key><UploadId>${id}</UploadId></Upload>`);
    answer(response, `<ListMultipartUploadsResult>${rows.join('')}</ListMultipartUploadsResult>`);
  }

  private ofBucket({ query }: S3Request, response: ServerResponse): void {
    if (!query.has('lifecycle')) return void response.end();
    if (this.lifecycle === undefined) return fail(response, { status: 404, code: 'NoSuchLifecycleConfiguration' });
    answer(response, this.lifecycle);
  }
}

function etag(bytes: Buffer): string {
  return `"${createHash('md5').update(bytes).digest('hex')}"`;
}

function answer(response: ServerResponse, body: string): void {
  response.writeHead(200, { 'content-type': 'application/xml' }).end(`<?xml version="1.0"?>${body}`);
}

function fail(response: ServerResponse, { status, code }: S3Refusal): void {
  response.writeHead(status, { 'content-type': 'application/xml' });
  response.end(`<?xml version="1.0"?><Error><Code>${code}</Code><Message>${code}</Message></Error>`);
}
