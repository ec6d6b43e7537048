import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { ToolFailure } from '../outcome';

/**
 * Opens a regular file for reading. Never waits and never opens anything else: a pipe without a writer would block a
 * thread for ever, a device may have no end.
 */
export async function openFile(absolute: string, shown: string): Promise<FileHandle> {
  const handle = await open(absolute, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  const isFile = await handle.stat().then(
    (facts) => facts.isFile(),
    () => false,
  );
  if (isFile) return handle;
  await handle.close();
  throw new ToolFailure(`${shown}: unable to read`);
}

/** A whole regular file of at most `maxBytes`. */
export async function readWhole(absolute: string, shown: string, maxBytes: number): Promise<Buffer> {
  const handle = await openFile(absolute, shown);
  try {
    const { size } = await handle.stat();
    if (size > maxBytes)
      throw new ToolFailure(`${shown} is too large for this tool: ${size} bytes, ${maxBytes} at most.`);
    return await handle.readFile();
  } finally {
    await handle.close();
  }
}
