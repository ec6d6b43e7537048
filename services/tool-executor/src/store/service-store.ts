import { UnavailableError } from '@margay/errors';
import type { ServiceShared } from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import type { Db } from 'mongodb';
import type { ToolExecutorConfig } from '../config';

const STORE_WAIT_MS = 60_000;

/** The document store of this process: one connection for all that lies there. */
export class ServiceStore {
  private readonly mongo?: MongoConnection;
  private opening?: Promise<Db>;

  constructor(
    config: Pick<ToolExecutorConfig, 'MARGAY_MONGODB_URL' | 'MARGAY_MONGODB_DATABASE'>,
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

  async close(): Promise<void> {
    await this.mongo?.close();
  }
}

async function opened(mongo: MongoConnection): Promise<Db> {
  await mongo.ready(STORE_WAIT_MS);
  const { db } = mongo.connection;
  if (!db) throw new UnavailableError('store_unavailable', 'The document store is not connected.');
  return db;
}
