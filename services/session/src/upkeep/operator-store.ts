import { NotFoundError } from '@margay/errors';
import { MongoConnection } from '@margay/platform/mongo';
import { parseConfig, type Logger } from '@margay/platform';
import { openObjects, type ObjectStore } from '@margay/platform/files';
import type { Db } from 'mongodb';
import type { Manifest } from '../backup/backup-format';
import { noteBackup } from '../backup/backup-age';
import { checkBackup, type BackupCheck } from '../backup/check-backup';
import { restoreBackup, type Restored } from '../backup/restore-backup';
import { writeBackup } from '../backup/write-backup';
import { MongoBlobStore } from '../commits/mongo-blob-store';
import { MongoCommitStore } from '../commits/mongo-commit-store';
import { KekConfig, OperatorConfig } from '../config';
import { SessionRepository } from '../effects/session.repository';
import { DataKeyRepository } from '../secrets/data-key.repository';
import { DataKeys } from '../secrets/data-keys';
import { KekFile } from '../secrets/kek-file';
import { describeStore } from './describe-store';
import { migrate } from './migrate';
import { rebuiltIn, tellLost } from './projections';
import { pages, rebuildAll, restoreSession, type RebuildPorts, type Rebuilt } from './rebuild';
import { verifySession, type Verification } from './verify';

const STORE_WAIT_MS = 15_000;
const BATCH = 200;

interface OperatorPorts extends RebuildPorts {
  db: Db;
  blobs: MongoBlobStore;
  objects: ObjectStore | undefined;
  sessions: SessionRepository;
  logger: Logger;
}

/** Data keys by the key-encryption key that they are still wrapped with. */
export interface RotatedKek {
  active: string;
  rewrapped: number;
  left: Map<string, number>;
}

/** What an operator does to the logs of an installation, straight against its document store. */
export class OperatorStore {
  private constructor(
    private readonly mongo: MongoConnection,
    private readonly ports: OperatorPorts,
  ) {}

  /** @throws UnavailableError `store_unavailable`; InvalidArgumentError `bad_environment` */
  static async open(environment: NodeJS.ProcessEnv, logger: Logger): Promise<OperatorStore> {
    const config = parseConfig(OperatorConfig, environment);
    const { MARGAY_MONGODB_URL: url, MARGAY_MONGODB_DATABASE: database } = config;
    const objects = await openObjects(config);
    const mongo = new MongoConnection({ url, database, logger, name: 'operator' });
    try {
      await mongo.ready(STORE_WAIT_MS);
    } catch (error) {
      await mongo.close();
      throw error;
    }
    const db = mongo.connection.getClient().db(database);
    const store = new MongoCommitStore(db.collection('commits'), db.collection('sessions'));
    const sessions = new SessionRepository(db.collection('sessions'));
    return new OperatorStore(mongo, {
      db,
      logger,
      store,
      sessions,
      blobs: new MongoBlobStore(db, objects),
      objects,
      projections: rebuiltIn(db, store, tellLost(logger)),
    });
  }

  /** Checks the log of each session, of one tenant or of all; also of those of which a row alone is left. */
  async *verifyAll(tenantId?: string): AsyncIterable<Verification> {
    const { store, sessions } = this.ports;
    const isMeant = (found: string | undefined): boolean => tenantId === undefined || found === tenantId;
    for await (const sessionId of pages((after) => store.sessionsAfter(after, BATCH)))
      if (isMeant(await this.tenantOf(sessionId))) yield await verifySession(this.ports, sessionId);
    for await (const sessionId of pages((after) => sessions.idsAfter(after, BATCH)))
      if ((await this.tenantOf(sessionId)) === undefined && isMeant((await sessions.find(sessionId))?.tenantId))
        yield await verifySession(this.ports, sessionId);
  }

  /** @throws NotFoundError `session_not_found` where nothing is stored under this id */
  async verify(sessionId: string): Promise<Verification> {
    await this.requireLog(sessionId);
    return verifySession(this.ports, sessionId);
  }

  rebuildAll(onProgress: (rebuilt: Rebuilt) => void): Promise<Rebuilt> {
    return rebuildAll(this.ports, onProgress);
  }

  /** @throws NotFoundError `session_not_found`; whatever makes its log unreadable */
  async rebuild(sessionId: string): Promise<Rebuilt> {
    await this.requireLog(sessionId);
    return { sessions: 1, rows: await restoreSession(this.ports, sessionId), unreadable: [] };
  }

  /** Counts and processes, for who looks for a fault. */
  describe(): Promise<object> {
    return describeStore(this.ports.db);
  }

  /** Prepares the store for a version, see `migrate`. */
  migrate(version: string, instance: string): Promise<void> {
    const { db, logger } = this.ports;
    return migrate({ db, version, instance, logger });
  }

  /** Writes a backup into a folder and reads it once more. @throws FailedPreconditionError `backup_exists` */
  async backup(
    folder: string,
    onPart?: (manifest: Manifest) => void,
  ): Promise<{ manifest: Manifest; check: BackupCheck }> {
    const { db, store, objects } = this.ports;
    const manifest = await writeBackup({ db, store, objects, folder, ...(onPart && { onPart }) });
    const check = await checkBackup(folder);
    if (check.problems.length === 0) await noteBackup(db, manifest);
    return { manifest, check };
  }

  /** Restores a backup into the next generation, see `restoreBackup`. */
  restore(folder: string, quietMs?: number): Promise<Restored> {
    const { db, logger } = this.ports;
    const { client, databaseName: database } = db;
    return restoreBackup({ client, database, folder, logger, ...(quietMs !== undefined && { quietMs }) });
  }

  /** Wraps the data keys of all tenants with the active key-encryption key, see `DataKeys.rewrapAll`. */
  async rotateKek(environment: NodeJS.ProcessEnv): Promise<RotatedKek> {
    const { db, logger } = this.ports;
    const kek = await KekFile.open(parseConfig(KekConfig, environment).MARGAY_KEK_FILE, logger);
    const rotated = await new DataKeys(new DataKeyRepository(db.collection('tenants')), kek).rewrapAll();
    return { active: kek.activeKid, ...rotated };
  }

  async close(): Promise<void> {
    this.ports.objects?.close();
    await this.mongo.close();
  }

  private async requireLog(sessionId: string): Promise<void> {
    const isThere =
      (await this.tenantOf(sessionId)) !== undefined || (await this.ports.store.lowerBound(sessionId)) > 0;
    if (!isThere) throw new NotFoundError('session_not_found', `session ${sessionId} not found`);
  }

  private async tenantOf(sessionId: string): Promise<string | undefined> {
    for await (const { tenantId } of this.ports.store.stored(sessionId)) return tenantId;
    return undefined;
  }
}
