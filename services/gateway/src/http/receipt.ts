import type { FastifyReply, FastifyRequest } from 'fastify';
import { refuseBrokenRequest } from './broken-requests';
import { operationOf, type Operation } from './operation';

/** From the first byte of a request to its last; answers may take as long as they like. */
export interface ReceiptLimits {
  usualMs: number;
  uploadMs: number;
}

/** Archives of gigabytes come by slow lines; other bodies have a megabyte at most. */
export const RECEIPT_LIMITS: ReceiptLimits = { usualMs: 60_000, uploadMs: 900_000 };

/** Refuses a request (408) whose body is not there in the time that its route gives it; the connection ends with it. */
export function limitReceipt(request: FastifyRequest, reply: FastifyReply, limits: ReceiptLimits): void {
  const { raw } = request;
  if (raw.complete || !hasBody(request)) return;
  const limitMs = takesFiles(operationOf(request)) ? limits.uploadMs : limits.usualMs;
  const timer = setTimeout(() => {
    if (raw.complete) return;
    // Who was answered already only keeps sending.
    if (reply.raw.headersSent) raw.socket.destroySoon();
    else refuseBrokenRequest(Object.assign(new Error('late'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }), raw.socket);
  }, limitMs).unref();
  raw.once('close', () => clearTimeout(timer));
}

function hasBody({ headers }: FastifyRequest): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

function takesFiles(operation: Operation | undefined): boolean {
  return operation?.streams !== undefined || operation?.uploadMaxBytes !== undefined;
}
