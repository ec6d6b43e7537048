import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { spawnSync } from 'node:child_process';
import { removeTree } from './remove-tree';

describe('removing a tree', () => {
  let base: string;

  beforeEach(() => (base = mkdtempSync(path.join(tmpdir(), 'margay-tree-'))));
  afterEach(() => rmSync(base, { recursive: true, force: true }));

  it('takes names that are no text, links without what they lead to, and closed folders', async () => {
    const target = path.join(base, 'target');
    mkdirSync(path.join(target, 'closed'), { recursive: true });
    writeFileSync(path.join(target, 'closed', 'file'), '');
    writeFileSync(Buffer.concat([Buffer.from(`${target}/`), Buffer.from([0xff, 0xfe])]), '');
    writeFileSync(path.join(target, 'line\nbreak'), '');
    writeFileSync(path.join(base, 'kept'), '');
    spawnSync('ln', ['-s', base, path.join(target, 'link')]);
    chmodSync(path.join(target, 'closed'), 0);
    await removeTree(target);
    expect([existsSync(target), existsSync(path.join(base, 'kept'))]).toEqual([false, true]);
    await removeTree(target);
  });

  it('takes paths longer than one call to the system takes', async () => {
    const target = path.join(base, 'deep');
    const script = `mkdir ${target}; cd ${target}; for i in $(seq 30); do mkdir ${'x'.repeat(200)}; cd ${'x'.repeat(200)}; done`;
    spawnSync('bash', ['-c', script]);
    await removeTree(target);
    expect(existsSync(target)).toBe(false);
  });
});
