import { UnavailableError } from '@margay/errors';
import type { BlobConfig, ServiceShared } from '@margay/platform';
import { openObjects, type ObjectStore } from '@margay/platform/files';
import { MongoConnection } from '@margay/platform/mongo';
import type { Db } from 'mongodb';
import type { ToolExecutorConfig } from '../config';

const STORE_WAIT_MS = 60_000;

/** The document store of this process: one connection for all that lies there. */
export class ServiceStore {
  private readonly mongo?: MongoConnection;
  private opening?: Promise<Db>;
  private openingObjects?: Promise<ObjectStore | undefined>;

  constructor(
    private readonly config: BlobConfig & Pick<ToolExecutorConfig, 'MARGAY_MONGODB_URL' | 'MARGAY_MONGODB_DATABASE'>,
    { logger, management }: Pick<ServiceShared, 'logger' | 'management'>,
  ) {
    const { MARGAY_MONGODB_URL: url, MARGAY_MONGODB_DATABASE: database } = config;
    if (url === undefined) return;
    this.mongo = new MongoConnection({ url, database, logger, name: 'tool-executor', registry: management.registry });
  }

  /** Undefined where none is configured. It is opened by whoever asks first. @throws UnavailableError `store_unavailable` */
  async find(): Promise<Db | undefined> {
    if (this.mongo === undefined) return undefined;
    this.opening ??= opened(this.mongo);
    return this.opening;
  }

  /** Where bytes of files go, if not into the document store. @throws InvalidArgumentError `bad_environment` */
  findObjects(): Promise<ObjectStore | undefined> {
    this.openingObjects ??= openObjects(this.config);
    return this.openingObjects;
  }

  async close(): Promise<void> {
    // Who asked for it was told what is wrong.
    (await this.openingObjects?.catch(() => undefined))?.close();
    await this.mongo?.close();
  }
}

async function opened(mongo: MongoConnection): Promise<Db> {
  await mongo.ready(STORE_WAIT_MS);
  const { db } = mongo.connection;
  if (!db) throw new UnavailableError('store_unavailable', 'The document store is not connected.');
  return db;
}
