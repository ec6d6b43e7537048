import { open, rename, stat } from 'node:fs/promises';

const MAX_BYTES = 8 * 1024 * 1024;

/** Opens a log for appending; one above 8 MiB is first moved aside to `<file>.old`. */
export async function openLog(file: string): Promise<{ fd: number; offset: number; close(): Promise<void> }> {
  const size = await stat(file).then(
    (facts) => facts.size,
    () => 0,
  );
  if (size > MAX_BYTES) await rename(file, `${file}.old`);
  const handle = await open(file, 'a', 0o600);
  return { fd: handle.fd, offset: size > MAX_BYTES ? 0 : size, close: () => handle.close() };
}

/** What was written behind `offset` bytes. */
export async function readLog(file: string, offset: number): Promise<string> {
  const handle = await open(file, 'r');
  try {
    const length = Math.max(0, (await handle.stat()).size - offset);
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, offset);
    return buffer.toString('utf8', 0, bytesRead);
  } finally {
    await handle.close();
  }
}

/** The last lines of one start, for an error message. */
export async function lastLines(file: string, offset: number, count = 5): Promise<string> {
  const text = await readLog(file, offset).catch(() => '');
  return text.trim().split('\n').slice(-count).map(readable).join(' | ');
}

/** The sentence and the cause of a JSON log line; other lines as they are. */
function readable(line: string): string {
  if (!line.startsWith('{')) return line;
  try {
    const { msg, err } = JSON.parse(line) as { msg?: string; err?: { message?: string } };
    return [msg, err?.message].filter((part) => part !== undefined).join(': ') || line;
  } catch {
    // Cut short or no JSON: shown as it is.
    return line;
  }
}
