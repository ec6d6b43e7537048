import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { removeTree } from '@margay/toolbox';
import { SandboxFolder } from './sandbox-folder';
import { SandboxRecords, type SandboxRecord } from './sandbox-records';

const MONTH_MS = 30 * 24 * 3_600_000;

let base: string;

beforeEach(() => {
  base = mkdtempSync(path.join(tmpdir(), 'margay-records-'));
});
afterEach(() => removeTree(base));

const recordOf = (sandboxId: string, lastUsedAt: number): SandboxRecord => ({
  ...{ sandboxId, tenantId: 't1', sessionId: sandboxId, folder: '/workspace', uid: 1, gid: 1 },
  ...{ generation: 1, epoch: 1, fingerprint: 'f', processes: [], lastUsedAt },
});

/** As sandboxd leaves it: closed to its owner, too, unless that is root. */
function attach(sandboxId: string): string {
  const folder = path.join(base, sandboxId, 'attachments');
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, 'notes.txt'), 'attached', { mode: 0o444 });
  chmodSync(folder, 0o555);
  return folder;
}

it('removes sandboxes unused for a month, whatever their folders are closed to', async () => {
  const records = await SandboxRecords.open(base);
  await records.save(recordOf('old', 0));
  await records.save(recordOf('young', 2));
  attach('old');
  const kept = attach('young');
  await records.collect(MONTH_MS + 1);
  expect(records.all().map(({ sandboxId }) => sandboxId)).toEqual(['young']);
  expect([existsSync(path.join(base, 'old')), existsSync(kept)]).toEqual([false, true]);
});

it('leaves nothing behind of what a sandbox forgets', async () => {
  attach('s1');
  await new SandboxFolder(base, 's1').forget();
  expect(readdirSync(path.join(base, 's1'))).toEqual([]);
});
