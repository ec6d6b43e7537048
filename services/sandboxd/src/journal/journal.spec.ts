import { appendFileSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { StartedEntry, StoredResult } from './entries';
import { Journal } from './journal';

let folder: string;
let journal: Journal;
const file = (): string => path.join(folder, 'journal.ndjson');

const started = (callId: string, runId = 'r1'): StartedEntry => ({
  callId,
  argHash: 'h',
  toolId: 'aider_shell_tool',
  effect: 'unkeyed',
  runId,
  generation: 0,
  epoch: 1,
  at: 0,
});
const result = (resultJson: string): StoredResult => ({
  status: 'ok',
  resultJson,
  limitHit: '',
  changedFiles: [],
  durationMs: 1,
  unchanged: false,
});

async function resultOf(callId: string): Promise<string | undefined> {
  const row = journal.find(callId);
  return row?.result && (await journal.result(row)).resultJson;
}

async function reopen(): Promise<void> {
  await journal.close();
  journal = await Journal.open(folder);
}

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'margay-journal-'));
  journal = await Journal.open(folder);
});
afterEach(async () => {
  await journal.close();
  rmSync(folder, { recursive: true });
});

describe('Journal', () => {
  it('has a start in the file when its promise resolves', async () => {
    await journal.started(started('c1'));
    expect(readFileSync(file(), 'utf8')).toMatch(/"kind":"started".*"callId":"c1"/);
  });

  it('finds rows and results again, in any number at once', async () => {
    await Promise.all(
      Array.from({ length: 50 }, async (_, index) => {
        await journal.started(started(`c${index}`));
        await journal.finished(`c${index}`, result(`"é${index}"`));
      }),
    );
    await journal.started(started('open'));
    await reopen();
    expect(await resultOf('c0')).toBe('"é0"');
    expect(await resultOf('c49')).toBe('"é49"');
    expect(journal.unfinished().map((row) => row.started.callId)).toEqual(['open']);
  });

  it('drops a line that a crash cut off and goes on behind it', async () => {
    await journal.started(started('c1'));
    appendFileSync(file(), '{"kind":"finished","callId":"c1","resu');
    await reopen();
    expect(await resultOf('c1')).toBeUndefined();
    await journal.finished('c1', result('"now"'));
    await reopen();
    expect(await resultOf('c1')).toBe('"now"');
  });

  it('forgets finished calls of a run, and shrinks the file when much is dead', async () => {
    const big = result(JSON.stringify('x'.repeat(1024 * 1024)));
    for (let index = 0; index < 12; index += 1) {
      await journal.started(started(`c${index}`, 'old'));
      await journal.finished(`c${index}`, big);
    }
    await journal.started(started('running', 'old'));
    await journal.started(started('kept', 'new'));
    await journal.finished('kept', result('"kept"'));
    await journal.forgetRun('old');
    await journal.started(started('next', 'new'));
    expect(statSync(file()).size).toBeLessThan(10_000);
    await journal.finished('next', result('"next"'));
    await reopen();
    expect(journal.find('c3')).toBeUndefined();
    expect(journal.unfinished().map((row) => row.started.callId)).toEqual(['running']);
    expect([await resultOf('kept'), await resultOf('next')]).toEqual(['"kept"', '"next"']);
  });

  it('syncs a start before it resolves, and the folder that names the file', async () => {
    const handle = Reflect.get(journal, 'handle') as FileHandle;
    const order: string[] = [];
    const append = handle.appendFile.bind(handle);
    jest.spyOn(handle, 'appendFile').mockImplementation(async (data) => {
      await append(data);
      order.push('append');
    });
    const sync = handle.datasync.bind(handle);
    jest.spyOn(handle, 'datasync').mockImplementation(async () => {
      await sync();
      order.push('sync');
    });
    await journal.started(started('c1'));
    expect(order).toEqual(['append', 'sync']);
    await journal.finished('c1', result('"x"'));
    expect(order).toEqual(['append', 'sync', 'append']);
  });

  it('goes on in whole lines after a full disk took a part of one', async () => {
    await journal.started(started('c1'));
    const handle = Reflect.get(journal, 'handle') as FileHandle;
    const append = handle.appendFile.bind(handle);
    jest.spyOn(handle, 'appendFile').mockImplementationOnce(async (data) => {
      await append((data as Buffer).subarray(0, 20));
      throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
    });
    await expect(journal.started(started('c2'))).rejects.toMatchObject({ code: 'ENOSPC' });
    await journal.started(started('c3'));
    await journal.finished('c3', result('"kept"'));
    expect(await resultOf('c3')).toBe('"kept"');
    await reopen();
    expect(await resultOf('c3')).toBe('"kept"');
    expect(journal.find('c2')).toBeUndefined();
  });
});
