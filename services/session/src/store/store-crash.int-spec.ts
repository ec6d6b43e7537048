import { spawn, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import os, { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { ensureStore, launcherConfig, startStore, TEST_SOURCES, type RunningStore } from '@margay/launcher';
import { MongoClient, type Collection } from 'mongodb';

interface Written {
  _id: string;
  sessionId: string;
  commitIds: string[];
  text: string;
  sum: string;
  rev?: number;
}

const DATABASE = 'crash';
const PROGRAM = join(__dirname, '../spec/store-client.cjs');

let directory: string;
let server: RunningStore;
let client: MongoClient;

/** A store of its own, also where the environment names one: this one is killed. */
async function start(): Promise<void> {
  const { mongodbUrl: _named, ...config } = launcherConfig();
  const found = await ensureStore({ config, allow: TEST_SOURCES });
  if (found.kind === 'url') throw new Error('a binary expected');
  const { engine, version, command } = found;
  server = await startStore({ directory, engine, version, command });
  client = await new MongoClient(server.url, { runtimeAdapters: { os } }).connect();
}

async function killServer(): Promise<void> {
  await client.close();
  server.kill('SIGKILL');
  await server.stop();
}

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'margay-crash-'));
  await start();
  await written().createIndex({ sessionId: 1, commitIds: 1 }, { unique: true });
}, 300_000);
afterAll(async () => {
  await client.close();
  await server.stop();
  await rm(directory, { recursive: true, force: true });
});

const written = (): Collection<Written> => client.db(DATABASE).collection('written');

/** Another process with a client of its own. */
class Client {
  readonly inserted = new Set<string>();
  readonly updated = new Set<string>();
  readonly lines: string[] = [];
  readonly exited: Promise<unknown>;
  private readonly child: ChildProcess;

  constructor(args: string[], env: NodeJS.ProcessEnv = {}) {
    const argv = [PROGRAM, server.url, DATABASE, ...args];
    this.child = spawn(process.execPath, argv, {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, ...env },
    });
    this.exited = once(this.child, 'exit');
    createInterface({ input: this.child.stdout as NodeJS.ReadableStream }).on('line', (line) => this.take(line));
  }

  async until(isSo: () => boolean): Promise<void> {
    while (!isSo()) await new Promise((resolve) => setTimeout(resolve, 10));
  }

  async kill(): Promise<void> {
    this.child.kill('SIGKILL');
    await this.exited;
  }

  private take(line: string): void {
    this.lines.push(line);
    const [what, id = ''] = line.split(' ');
    if (what === 'inserted') this.inserted.add(id);
    if (what === 'updated') this.updated.add(id);
  }
}

/** Every document is whole, every acknowledged write is there, and both unique indexes still refuse a repeat. */
async function expectWhole(clients: Client[]): Promise<void> {
  const found = new Map<string, Written>();
  for await (const document of written().find({})) {
    if (document._id === 'raced') continue;
    expect(createHash('sha256').update(document.text).digest('hex')).toBe(document.sum);
    found.set(document._id, document);
  }
  for (const { inserted, updated } of clients) {
    expect(inserted.size).toBeGreaterThan(0);
    for (const id of inserted) expect(found.has(id)).toBe(true);
    for (const id of updated) expect(found.get(id)?.rev).toBe(1);
    const last = found.get([...inserted].at(-1) ?? '') as Written;
    await expect(written().insertOne(last)).rejects.toMatchObject({ code: 11_000 });
    const sameCommand = { ...last, _id: `${last._id}.other`, commitIds: ['fresh', last.commitIds[1] ?? ''] };
    await expect(written().insertOne(sameCommand)).rejects.toMatchObject({ code: 11_000 });
    expect(await written().findOne({ sessionId: last.sessionId, commitIds: last.commitIds[0] })).toMatchObject({ _id: last._id }); // prettier-ignore
  }
}

describe('the document store', () => {
  it('lets one of 200 concurrent inserts by two processes win', async () => {
    const env = { START_AT_MS: String(Date.now() + 1_500) };
    const clients = [new Client(['race', '100'], env), new Client(['race', '100'], env)];
    await Promise.all(clients.map(({ exited }) => exited));
    const told = clients.map(({ lines }) => JSON.parse(lines.at(-1) ?? '') as { won: number; failed: number });
    expect(told.reduce((sum, { won }) => sum + won, 0)).toBe(1);
    expect(told.map(({ failed }) => failed)).toEqual([0, 0]);
  });

  it('holds whole, acknowledged documents after a client was killed in mid-write', async () => {
    const [killed, other] = [new Client(['write', 'killed']), new Client(['write', 'other'])];
    await Promise.all([killed, other].map((each) => each.until(() => each.inserted.size > 100)));
    await killed.kill();
    const before = other.inserted.size;
    await other.until(() => other.inserted.size > before + 20);
    await other.kill();
    await expectWhole([killed, other]);
  });

  it.each([1, 2, 3])(
    'holds whole, acknowledged documents after it was killed itself in mid-write: round %d',
    async (round) => {
      const clients = [new Client(['write', `a${round}`]), new Client(['write', `b${round}`])];
      await Promise.all(clients.map((each) => each.until(() => each.inserted.size > 50)));
      await killServer();
      await Promise.all(clients.map((each) => each.kill()));
      await start();
      await expectWhole(clients);
    },
    120_000,
  );
});
