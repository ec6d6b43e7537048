import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import os, { tmpdir } from 'node:os';
import { join } from 'node:path';
import { launcherConfig, openStore, TEST_SOURCES, type OpenStore } from '@margay/launcher';
import { MongoClient, type Db } from 'mongodb';

// Jest has no dynamic imports, by which the driver would find the operating system's module itself.
const OPTIONS = {
  writeConcern: { w: 'majority', journal: true },
  readConcern: { level: 'majority' },
  runtimeAdapters: { os },
} as const;

/** A database of one spec file, reached by two clients, as two replicas reach theirs. */
export class RealStore {
  private readonly name = `spec_${randomBytes(6).toString('hex')}`;
  private readonly clients: MongoClient[] = [];
  private directory!: string;
  private server!: OpenStore;

  /** @param options `isAlone`: on a server of its own, for who would hold up the other files */
  constructor(private readonly options: { isAlone: boolean } = { isAlone: false }) {}

  async start(): Promise<void> {
    this.directory = await mkdtemp(join(tmpdir(), 'margay-store-'));
    const { mongodbUrl, ...config } = launcherConfig();
    const known = this.options.isAlone || mongodbUrl === undefined ? {} : { mongodbUrl };
    this.server = await openStore({ directory: this.directory, allow: TEST_SOURCES, config: { ...config, ...known } });
    for (let i = 0; i < 2; i++) this.clients.push(await new MongoClient(this.server.url, OPTIONS).connect());
  }

  get url(): string {
    return this.server.url;
  }

  get engine(): OpenStore['engine'] {
    return this.server.engine;
  }

  get db(): Db {
    return this.clients[0]?.db(this.name) as Db;
  }

  /** The same database by another client. */
  get otherDb(): Db {
    return this.clients[1]?.db(this.name) as Db;
  }

  async stop(): Promise<void> {
    await this.db.dropDatabase();
    await Promise.all(this.clients.map((client) => client.close()));
    await this.server.stop();
    await rm(this.directory, { recursive: true, force: true });
  }
}

export function times<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, index) => make(index));
}
