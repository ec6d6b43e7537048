import type { Attachment } from '@margay/contracts';
import { Attachment as AttachmentSchema } from '@margay/contracts';
import type { Collection } from 'mongodb';

export interface AttachmentRow {
  /** `id` of the record. */
  _id: string;
  tenantId: string;
  sessionId: string;
  blobId: string;
  bytes: number;
  createdAt: Date;
  /** As the public sees it; it never changes. */
  recordJson: string;
}

/** The collection `attachments`: uploads, whether a message names them or not. */
export class AttachmentRepository {
  constructor(private readonly rows: Collection<AttachmentRow>) {}

  async createIndexes(): Promise<void> {
    await this.rows.createIndex({ tenantId: 1, sessionId: 1, createdAt: 1 }, { name: 'session_v1' });
    await this.rows.createIndex({ tenantId: 1, blobId: 1 }, { name: 'blob_v1' });
  }

  async add(owner: { tenantId: string; sessionId: string }, record: Attachment): Promise<void> {
    await this.rows.insertOne({
      _id: record.id,
      ...owner,
      blobId: record.content_blob.id,
      bytes: record.size_bytes,
      createdAt: new Date(),
      recordJson: JSON.stringify(record),
    });
  }

  find(tenantId: string, ids: readonly string[]): Promise<AttachmentRow[]> {
    return this.rows.find({ _id: { $in: [...ids] }, tenantId }).toArray();
  }

  /** Of one session, oldest first. */
  list(tenantId: string, sessionId: string, limit: number): Promise<AttachmentRow[]> {
    return this.rows.find({ tenantId, sessionId }).sort({ createdAt: 1 }).limit(limit).toArray();
  }

  async refersTo(tenantId: string, blobId: string): Promise<boolean> {
    return (await this.rows.findOne({ tenantId, blobId }, { projection: { _id: 1 } })) !== null;
  }

  async isAttachedTo(tenantId: string, sessionId: string, blobId: string): Promise<boolean> {
    return (await this.rows.findOne({ tenantId, blobId, sessionId }, { projection: { _id: 1 } })) !== null;
  }
}

export function recordOf({ recordJson }: AttachmentRow): Attachment {
  return AttachmentSchema.parse(JSON.parse(recordJson));
}
