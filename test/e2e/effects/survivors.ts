import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 20;
const PATIENCE_MS = 90_000;

/** Processes of this machine that have the word in their command line, whatever sandbox they are in. */
export async function processesWith(word: string): Promise<number[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid);
  const found = await Promise.all(pids.map(async (pid) => ((await commandOf(pid)).includes(word) ? Number(pid) : 0)));
  return found.filter((pid) => pid > 0);
}

/** The nearest process above this one that has the word in its command line. */
export async function ancestorWith(word: string, pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'latin1');
  const parent = Number(/^PPid:\s+(\d+)$/m.exec(status)?.[1] ?? 0);
  if (parent <= 1) throw new Error(`no process above ${pid} has ${word}`);
  return (await commandOf(String(parent))).includes(word) ? parent : ancestorWith(word, parent);
}

async function commandOf(pid: string): Promise<string> {
  // One that is gone, or a zombie, has none.
  return readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '');
}

/** Resolves once so many processes have the word. */
export async function processesAppear(word: string, count: number): Promise<void> {
  await until(`${count} processes with ${word}`, async () => (await processesWith(word)).length >= count);
}

/** Resolves once no process has the word. */
export async function processesGone(word: string): Promise<void> {
  await until(`the end of all processes with ${word}`, async () => (await processesWith(word)).length === 0);
}

export async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const endMs = performance.now() + PATIENCE_MS;
  while (!(await holds())) {
    if (performance.now() > endMs) throw new Error(`waited in vain for ${what}`);
    await delay(POLL_MS);
  }
}
