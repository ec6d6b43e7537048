/** Content-addressed store of large texts: the id is the SHA-256 of the bytes. Put first, reference afterwards. */
export abstract class BlobStore {
  /** Idempotent. @returns lower-case hex SHA-256 of the bytes */
  abstract put(tenantId: string, bytes: Uint8Array): Promise<string>;
  /** @throws NotFoundError `blob_not_found` */
  abstract get(tenantId: string, id: string): Promise<Uint8Array>;
}
