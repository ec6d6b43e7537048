import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

/**
 * Removes a file or folder with everything below it; nothing happens if there is none. Done by `rm`, which also gets at names
 * that are no text and at paths longer than one call to the system takes. What its own permissions protect goes, too.
 * @throws what `rm` said, if something is left
 */
export async function removeTree(target: string): Promise<void> {
  try {
    await run('rm', ['-rf', '--', target]);
  } catch {
    // Its owner may have closed folders to himself.
    await run('chmod', ['-R', 'u+rwX', '--', target]).catch(() => undefined); // `rm` says what is left
    await run('rm', ['-rf', '--', target]);
  }
}
