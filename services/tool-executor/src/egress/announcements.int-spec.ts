import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { subjects } from '@margay/contracts';
import { openNats, type OpenServer } from '@margay/launcher';
import { createLogger, NatsBus } from '@margay/platform';
import type { Collection } from 'mongodb';
import type { SandboxRow } from '../kubernetes-driver/sandbox-row';
import { SandboxRepository } from '../kubernetes-driver/sandbox.repository';
import { openAnnouncements, type Announcements } from './announcements';

const logger = createLogger({ level: 'off' });
let folder: string;
let nats: OpenServer;
let bus: NatsBus;
let announcements: Announcements;
let heard: string[];
/** Whether the row is still as it was read. */
let isSame: boolean;

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'margay-announcements-'));
  nats = await openNats({ directory: folder });
  bus = new NatsBus({ url: nats.url, name: 'spec', logger });
  await bus.start();
  announcements = await openAnnouncements(nats.url, logger);
}, 300_000);
afterAll(async () => {
  await announcements.close();
  await bus.close();
  await nats.stop();
  await rm(folder, { recursive: true });
});
beforeEach(() => ([heard, isSame] = [[], true]));

const rows = { updateOne: async () => ({ matchedCount: isSame ? 1 : 0 }) } as unknown as Collection<SandboxRow>;
const row = { _id: randomUUID(), rev: 1 } as SandboxRow;
/** The server may be one that others talk over, too. */
const [signal, one, other] = [randomUUID(), randomUUID(), randomUUID()];

describe('the end of a sandbox', () => {
  it('is announced once it is stored, and only by whoever stored it', async () => {
    const stop = bus.subscribe(subjects.config('sandbox'), (id) => heard.push(Buffer.from(id).toString()));
    const until = async (id: string, again: () => void = () => undefined) => {
      for (; !heard.includes(id); await new Promise((resolve) => setTimeout(resolve, 20))) again();
    };
    // Whoever listens is heard of by the server a moment later.
    await until(signal, () => announcements.ended(signal));
    const sandboxes = new SandboxRepository(rows, (sandboxId) => announcements.ended(sandboxId));
    isSame = false;
    await sandboxes.finish(row, 'draining', 'idle');
    await sandboxes.change(row, { lastActiveAt: new Date() });
    isSame = true;
    await sandboxes.change(row, { lastActiveAt: new Date() });
    for (const sandboxId of [one, other]) await sandboxes.finish({ ...row, _id: sandboxId }, 'released', 'ended');
    await until(other);
    expect(heard.filter((id) => id === one || id === other)).toEqual([one, other]);
    expect(heard).not.toContain(row._id);
    stop();
  });

  it('is nobody’s news where there is no NATS', async () => {
    const silent = await openAnnouncements(undefined, logger);
    silent.ended('b1');
    await silent.close();
    expect(heard).toEqual([]);
  });
});
