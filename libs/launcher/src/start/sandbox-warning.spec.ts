import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryFolder } from '../fixtures.testing';
import { sandboxWarning } from './sandbox-warning';

describe('the warning about sandboxes', () => {
  let folder: Awaited<ReturnType<typeof temporaryFolder>>;
  beforeEach(async () => (folder = await temporaryFolder()));
  afterEach(() => folder.remove());

  const ready = (isolation: string) => JSON.stringify({ level: 'info', isolation, msg: 'sandbox driver ready' });
  const warned = JSON.stringify({ level: 'warn', isolation: 'none', msg: 'sandbox "none": commands run as you' });
  async function logOf(...lines: string[]): Promise<string> {
    const file = join(folder.path, 'control.log');
    await writeFile(file, [...lines, '{"level":"info","msg":"margay is ready"}', '{"level":'].join('\n'));
    return file;
  }

  it('is that of the newest start', async () => {
    expect(await sandboxWarning(await logOf(ready('bwrap'), ready('none'), warned))).toBe(
      'sandbox "none": commands run as you',
    );
    expect(await sandboxWarning(await logOf(ready('none'), warned, 'no JSON', ready('bwrap')))).toBeUndefined();
  });

  it('is none where nothing was said', async () => {
    expect(await sandboxWarning(await logOf())).toBeUndefined();
    expect(await sandboxWarning(join(folder.path, 'absent.log'))).toBeUndefined();
  });
});
