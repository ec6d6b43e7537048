import { createHash } from 'node:crypto';
import { NotFoundError } from '@margay/errors';
import { BlobStore } from './blobs';

export class MemoryBlobStore extends BlobStore {
  private readonly blobs = new Map<string, Uint8Array>();

  put(tenantId: string, bytes: Uint8Array): Promise<string> {
    const id = createHash('sha256').update(bytes).digest('hex');
    this.blobs.set(`${tenantId}/${id}`, bytes);
    return Promise.resolve(id);
  }

  get(tenantId: string, id: string): Promise<Uint8Array> {
    const bytes = this.blobs.get(`${tenantId}/${id}`);
    if (!bytes) return Promise.reject(new NotFoundError('blob_not_found', `blob ${id} not found`));
    return Promise.resolve(bytes);
  }
}
