import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { PathPolicy } from './files/paths';
import type { CallContext } from './outcome';
import { OutputLog } from './shell/output-log';

/** A temporary workspace for specs. */
export class TestWorkspace {
  readonly base = mkdtempSync(path.join(tmpdir(), 'margay-toolbox-'));
  readonly root = path.join(this.base, 'project');
  readonly paths: PathPolicy;

  constructor(escapingLinks: 'follow' | 'refuse' = 'refuse') {
    mkdirSync(this.root);
    this.paths = new PathPolicy({ root: this.root, escapingLinks });
  }

  write(name: string, content: string | Buffer): string {
    const file = path.resolve(this.root, name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, content);
    return file;
  }

  read(name: string): string {
    return readFileSync(path.resolve(this.root, name), 'utf8');
  }

  remove(): void {
    rmSync(this.base, { recursive: true, force: true });
  }
}

let calls = 0;

export function testCall(more: Partial<CallContext> = {}): CallContext {
  calls += 1;
  return {
    callId: `call-${process.pid}-${calls}`,
    signal: new AbortController().signal,
    output: new OutputLog(),
    ...more,
  };
}
