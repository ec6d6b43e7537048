import 'reflect-metadata';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePorts, openStore, type OpenStore } from '@margay/launcher';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { getConnectionToken, getModelToken, MongooseModule, Prop, Schema, SchemaFactory } from '@nestjs/mongoose';
import type { Connection, Model } from 'mongoose';
import { Registry } from 'prom-client';
import { createLogger } from '../logging/logger';
import { MongoConnection } from './mongo-connection';
import { mongoModule } from './mongo.module';

@Schema({ collection: 'notes', versionKey: false })
class Note {
  @Prop({ type: String, required: true })
  declare _id: string;

  @Prop({ type: String, required: true })
  declare tenantId: string;
}

const logger = createLogger({ service: 'test', level: 'off' });
const database = `margay_platform_${process.pid}`;
const nowhere = 'mongodb://127.0.0.1:1/?directConnection=true&serverSelectionTimeoutMS=100';

let directory: string;
let store: OpenStore;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'margay-mongo-'));
  store = await openStore({ directory });
}, 300_000);
afterAll(async () => {
  await store.stop();
  await rm(directory, { recursive: true });
});

describe('mongoModule', () => {
  it('gives repositories a connection whose writes are majority-acknowledged, and closes it', async () => {
    const url = store.url;
    @Module({
      imports: [
        mongoModule({ url, database, logger }),
        MongooseModule.forFeature([{ name: Note.name, schema: SchemaFactory.createForClass(Note) }]),
      ],
    })
    class AppModule {}

    const app = await NestFactory.createApplicationContext(AppModule, { logger: false });
    const notes = app.get<Model<Note>>(getModelToken(Note.name));
    const connection = app.get<Connection>(getConnectionToken());
    await notes.create({ _id: 'n1', tenantId: 'acme' });
    expect(await notes.findById('n1').lean()).toEqual({ _id: 'n1', tenantId: 'acme' });
    await expect(notes.create({ _id: 'n1', tenantId: 'acme' })).rejects.toMatchObject({ code: 11000 });
    expect(connection.db?.writeConcern).toMatchObject({ w: 'majority', journal: true });
    await app.get(MongoConnection).ping();
    await connection.dropDatabase();
    await app.close();
    expect(connection.readyState).toBe(0);
  });

  it('starts and closes without a server', async () => {
    @Module({ imports: [mongoModule({ url: nowhere, database, logger })] })
    class AppModule {}
    const app = await NestFactory.createApplicationContext(AppModule, { logger: false });
    await expect(app.get(MongoConnection).ping()).rejects.toMatchObject({ reason: 'store_unavailable' });
    await app.close();
  });
});

describe('MongoConnection', () => {
  it('times commands by collection and operation, failed ones too', async () => {
    const registry = new Registry();
    const mongo = new MongoConnection({ url: store.url, database: `${database}_timed`, logger, registry });
    try {
      await mongo.ready(15_000);
      const notes = mongo.connection.collection<{ _id: string }>('notes');
      await notes.insertOne({ _id: 'n1' });
      await notes.findOne({ _id: 'n1' });
      await expect(notes.updateOne({ _id: 'n1' }, { $unknown: {} } as never)).rejects.toThrow('$unknown');
      await mongo.ping();
      const counts = /^margay_store_operation_duration_seconds_count\{(.*)\} (\d+)$/gm;
      const seen = [...(await registry.metrics()).matchAll(counts)].map(([, labels, count]) => `${labels} ${count}`);
      expect(seen.sort()).toEqual([
        'collection="notes",operation="find" 1',
        'collection="notes",operation="insert" 1',
        'collection="notes",operation="update" 1',
      ]);
      await mongo.connection.dropDatabase();
    } finally {
      await mongo.close();
    }
  });

  it('says within the time given that the store cannot be reached', async () => {
    const mongo = new MongoConnection({ url: nowhere, database, logger });
    await expect(mongo.ready(50)).rejects.toMatchObject({ code: 'UNAVAILABLE', reason: 'store_unavailable' });
    await mongo.close();
  });

  it('opens once a server can be reached, without being asked again', async () => {
    const [port] = (await freePorts(1)) as [number];
    const url = `mongodb://127.0.0.1:${port}/?directConnection=true`;
    const failed = Promise.withResolvers<void>();
    const noticing = createLogger({ service: 'test', level: 'warn', write: () => failed.resolve() });
    const mongo = new MongoConnection({ url, database, logger: noticing }).start();
    await failed.promise;
    const proxy = createServer((inbound) => {
      const outbound = connect(Number(new URL(store.url).port), '127.0.0.1');
      inbound
        .on('error', () => outbound.destroy())
        .pipe(outbound)
        .on('error', () => inbound.destroy())
        .pipe(inbound);
    });
    await new Promise<void>((resolve) => proxy.listen(port, '127.0.0.1', resolve));
    try {
      await mongo.ready(15_000);
      await mongo.ping();
    } finally {
      await mongo.close();
      await new Promise((resolve) => proxy.close(resolve));
    }
  });
});
