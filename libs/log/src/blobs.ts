/** Where the whole of a text lies of which an event holds the beginning and the end. */
export interface BlobReference {
  id: string;
  bytes: number;
  sha256: string;
}

/** Content-addressed store of large texts: the id is the SHA-256 of the bytes. Put first, reference afterwards. */
export abstract class BlobStore {
  /** Idempotent. @returns lower-case hex SHA-256 of the bytes */
  abstract put(tenantId: string, bytes: Uint8Array): Promise<string>;
  /** @throws NotFoundError `blob_not_found` */
  abstract get(tenantId: string, id: string): Promise<Uint8Array>;
}
