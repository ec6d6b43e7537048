import { randomBytes } from 'node:crypto';
import { isoMicros, type Attachment, type Principal, type RunGrant, type sessionsPb } from '@margay/contracts';
import { FailedPreconditionError, InvalidArgumentError, NotFoundError } from '@margay/errors';
import type { BlobStore } from '@margay/log';
import { mayAccess, requireAccess, requireDriver } from '../access/access-rules';
import type { SessionLog } from '../commits/session-log';
import { recordOf, type AttachmentRepository, type AttachmentRow } from './attachment.repository';
import { isImage, isText, shown, storedName, typeOf } from './attachment-types';

/** One message between services holds it. */
export const ATTACHMENT_MAX_BYTES = 7 * 1024 * 1024;
const SESSION_MAX_FILES = 200;
const SESSION_MAX_BYTES = 200 * 1024 * 1024;
const PIECE_MAX_BYTES = 4 * 1024 * 1024;

interface AttachmentBlobs extends BlobStore {
  size(tenantId: string, id: string): Promise<number>;
  read(tenantId: string, id: string, start: number, end: number | undefined): AsyncIterable<Buffer>;
}

export interface AttachmentsPorts {
  log: SessionLog;
  blobs: AttachmentBlobs;
  rows: AttachmentRepository;
  /** Whether any commit of the session refers to the blob. */
  refersTo: (tenantId: string, blobId: string, sessionId: string) => Promise<boolean>;
}

/** Files that people attach: the bytes are stored first, then the row, then a message may name it (protocol §6). */
export class AttachmentsService {
  constructor(private readonly ports: AttachmentsPorts) {}

  /** @throws InvalidArgumentError `unsupported_type`, `image_unsupported`, `too_large`, `attachments_exhausted` */
  async add(principal: Principal, request: sessionsPb.AddAttachmentRequest): Promise<Attachment> {
    const { log, blobs, rows } = this.ports;
    const head = await log.recentHead(request.sessionId);
    requireAccess(principal, head);
    requireDriver(principal, 'sessions.interact');
    if (head.terminated) throw new FailedPreconditionError('session_terminated', 'Session is permanently terminated');
    const { tenantId, sessionId } = head;
    const type = checkedType(request);
    await this.requireRoom(tenantId, sessionId, request.content.length);
    const blobId = await blobs.put(tenantId, request.content);
    const record = recordFor(request, type, blobId);
    await rows.add({ tenantId, sessionId }, record);
    return record;
  }

  /** Names of a session's files, as their owners call them. */
  async names(tenantId: string, sessionId: string): Promise<string[]> {
    const rows = await this.ports.rows.list(tenantId, sessionId, SESSION_MAX_FILES);
    return rows.map((row) => recordOf(row).filename);
  }

  /**
   * What a message attaches, as it was stored: clients are believed the ids only. Files of other sessions that the caller
   * may see count, too, so that forks keep theirs.
   * @throws InvalidArgumentError `attachment_not_found`
   */
  async resolve(principal: Principal, listed: readonly unknown[]): Promise<Attachment[]> {
    const ids = listed.map(idOf);
    if (ids.length === 0) return [];
    const found = new Map((await this.ports.rows.find(principal.tenantId, ids)).map((row) => [row._id, row]));
    const records: Attachment[] = [];
    for (const id of new Set(ids)) {
      const row = found.get(id);
      if (!row || !(await this.maySee(principal, row))) throw unknownAttachment(id);
      records.push(recordOf(row));
    }
    return records;
  }

  /** A piece of a file for the sandbox of the session that the grant names. */
  async read(
    { tenantId, sessionId }: RunGrant,
    { blobId, offset, length }: { blobId: string; offset: number; length: number },
  ): Promise<Buffer> {
    const { rows, blobs, refersTo } = this.ports;
    const isOwn =
      (await rows.isAttachedTo(tenantId, sessionId, blobId)) || (await refersTo(tenantId, blobId, sessionId));
    if (!isOwn) throw new NotFoundError('blob_not_found', `blob ${blobId} not found`);
    const wanted = offset + Math.min(length || PIECE_MAX_BYTES, PIECE_MAX_BYTES);
    const end = Math.min(wanted, await blobs.size(tenantId, blobId));
    if (offset >= end) return Buffer.alloc(0);
    const chunks: Buffer[] = [];
    for await (const chunk of blobs.read(tenantId, blobId, offset, end)) chunks.push(chunk);
    return Buffer.concat(chunks);
  }

  private async maySee(principal: Principal, { tenantId, sessionId }: AttachmentRow): Promise<boolean> {
    const head = await this.ports.log.recentHead(sessionId);
    return head.tenantId === tenantId && mayAccess(principal, head);
  }

  private async requireRoom(tenantId: string, sessionId: string, bytes: number): Promise<void> {
    const rows = await this.ports.rows.list(tenantId, sessionId, SESSION_MAX_FILES);
    const held = rows.reduce((sum, row) => sum + row.bytes, 0);
    if (rows.length < SESSION_MAX_FILES && held + bytes <= SESSION_MAX_BYTES) return;
    throw new InvalidArgumentError(
      'attachments_exhausted',
      `A session holds ${SESSION_MAX_FILES} attached files and ${SESSION_MAX_BYTES / 1024 ** 2} MiB of them; go on in another session.`,
    );
  }
}

function checkedType({ filename, contentType, content, model }: sessionsPb.AddAttachmentRequest): string {
  const name = shown(filename);
  if (name === '') throw new InvalidArgumentError('bad_request', "Invalid input: 'files': a file has no name");
  const type = typeOf(filename, contentType);
  if (isImage(type))
    throw new InvalidArgumentError(
      'image_unsupported',
      `'${name}' is an image, and ${model === '' ? "the session's model" : `the model ${shown(model)}`} is not known to understand images.`,
    );
  if (content.length <= ATTACHMENT_MAX_BYTES) return type;
  throw new InvalidArgumentError('too_large', `'${name}' is larger than ${ATTACHMENT_MAX_BYTES / 1024 ** 2} MiB.`);
}

function recordFor({ filename, content }: sessionsPb.AddAttachmentRequest, type: string, blobId: string): Attachment {
  const id = randomBytes(16).toString('hex');
  const bytes = content.length;
  return {
    id,
    filename: shown(filename),
    stored_name: storedName(id, filename),
    content_type: type,
    size_bytes: bytes,
    uploaded_at: isoMicros(Date.now() * 1_000),
    parsed: isText(type, content),
    content_blob: { id: blobId, bytes, sha256: blobId },
  };
}

function idOf(listed: unknown): string {
  const { id } = (listed ?? {}) as { id?: unknown };
  if (typeof id === 'string' && /^[0-9a-f]{32}$/.test(id)) return id;
  throw unknownAttachment(typeof id === 'string' ? shown(id) : '');
}

function unknownAttachment(id: string): Error {
  return new InvalidArgumentError(
    'attachment_not_found',
    `Invalid input: 'attachments': there is no attachment ${id === '' ? 'without an id' : id}; pass the records that the upload answered.`,
  );
}
