import { FakeSandbox, runWorld, toolDescriptor, type FakeTool, type ScriptedAnswer } from '@margay/testing';
import { Tools, type ToolInvocation, type ToolOutcome } from '../index';

const DONE: ScriptedAnswer = { text: 'Done.' };
const tool = (tool_id: string, effect: 'pure' | 'keyed' | 'unkeyed'): FakeTool => ({
  descriptor: toolDescriptor({ tool_id, effect }),
  run: () => ({ status: 'ok', result: tool_id }),
});
const TOOLS = [tool('look', 'pure'), tool('write', 'keyed'), tool('shell', 'unkeyed')];

/** Notes with which incarnation it was called. */
class WatchedSandbox extends FakeSandbox {
  readonly called: string[] = [];

  override execute(...[invocation, options]: Parameters<FakeSandbox['execute']>): ReturnType<FakeSandbox['execute']> {
    this.called.push(`${invocation.toolId}@${options.incarnation}`);
    return super.execute(invocation, options);
  }
}

const sandboxOf = (): WatchedSandbox => new WatchedSandbox(TOOLS, { incarnation: 'one', results: new Map() });

it('commits to a sandbox before its first call that is not pure', async () => {
  const sandbox = sandboxOf();
  const world = await runWorld(
    [{ calls: [{ name: 'shell' }, { name: 'write' }] }, { calls: [{ name: 'write' }] }, DONE],
    [sandbox],
  );
  await world.session.run('Go.');
  expect(sandbox.called).toEqual(['shell@none', 'write@none', 'shell@one', 'write@one', 'write@one']);
  expect(sandbox.ran).toHaveLength(3);
  let commitments = 0;
  for await (const { records } of world.store.range(world.session.id, 1))
    commitments += records.filter((record) => record.includes('"kind":"sandbox"')).length;
  expect(commitments).toBe(1);
});

it('folds the commitment into the intent where a pure call found the sandbox already', async () => {
  const sandbox = sandboxOf();
  const world = await runWorld([{ calls: [{ name: 'look' }] }, { calls: [{ name: 'shell' }] }, DONE], [sandbox]);
  await world.session.run('Go.');
  expect(sandbox.called).toEqual(['look@', 'shell@one']);
  expect(await world.commits()).toBe(3 + 1 + 2 * 2 + 1);
});

it('moves on to another sandbox within its epoch', async () => {
  const sandbox = sandboxOf();
  const world = await runWorld(
    (_request, n) => {
      if (n === 2) sandbox.memory.incarnation = 'two';
      return n < 3 ? { calls: [{ name: 'shell' }] } : DONE;
    },
    [sandbox],
  );
  await world.session.run('Go.');
  expect(sandbox.called).toEqual(['shell@none', 'shell@one', 'shell@one', 'shell@two']);
  expect(await world.payloads('tool_result')).toMatchObject([{ success: true }, { success: true }]);
});

it('does not move an unkeyed call on whose lost attempt may have run', async () => {
  class Lossy extends WatchedSandbox {
    override async execute(...call: Parameters<FakeSandbox['execute']>): ReturnType<FakeSandbox['execute']> {
      const outcome = await super.execute(...call);
      return outcome.status === 'wrong_incarnation' ? { ...outcome, mayHaveRun: true } : outcome;
    }
  }
  const sandbox = new Lossy(TOOLS, { incarnation: 'one', results: new Map() });
  const script = (_request: unknown, n: number): ScriptedAnswer => {
    if (n === 2) sandbox.memory.incarnation = 'two';
    return n < 3 ? { calls: [{ name: 'shell' }, { name: 'write' }] } : DONE;
  };
  const world = await runWorld(script, [sandbox]);
  await world.session.run('Go.');
  const [first, , second, write] = await world.payloads('tool_result');
  expect(first).toMatchObject({ tool_id: 'shell', success: true });
  expect(second).toMatchObject({ tool_id: 'shell', success: false, error: 'sandbox_lost', outcome: 'unknown' });
  expect(write).toMatchObject({ tool_id: 'write', success: true });
});

it('reports an unkeyed call as unknown when the port itself breaks, and others as failed', async () => {
  class Broken extends Tools {
    list(): Promise<ReturnType<typeof toolDescriptor>[]> {
      return Promise.resolve(TOOLS.map(({ descriptor }) => descriptor));
    }
    execute(): Promise<ToolOutcome> {
      return Promise.reject(new Error('connection lost'));
    }
  }
  const world = await runWorld([{ calls: [{ name: 'look' }, { name: 'shell' }] }, DONE], [new Broken()]);
  await world.session.run('Go.');
  const [look, shell] = await world.payloads('tool_result');
  expect(look).toMatchObject({ success: false, error: "'look' could not be run: connection lost" });
  expect(look).not.toHaveProperty('outcome');
  expect(shell).toMatchObject({ success: false, outcome: 'unknown' });
});

it('does not count the time a call waits for its sandbox', async () => {
  class Waiting extends Tools {
    options: Parameters<Tools['execute']>[1] | undefined;
    list(): Promise<ReturnType<typeof toolDescriptor>[]> {
      return Promise.resolve([toolDescriptor({ tool_id: 'look', timeout: 10 })]);
    }
    execute(_invocation: ToolInvocation, options: Parameters<Tools['execute']>[1]): Promise<ToolOutcome> {
      this.options = options;
      options.onWaiting?.();
      return new Promise(() => undefined);
    }
  }
  const tools = new Waiting();
  const world = await runWorld([{ calls: [{ name: 'look' }] }, DONE], [tools]);
  const running = world.session.run('Go.');
  while (!tools.options) await new Promise((resolve) => setImmediate(resolve));
  await world.clock.advance(100_000);
  expect(tools.options.signal.aborted).toBe(false);
  tools.options.onStarted?.();
  await world.clock.advance(10_000);
  await running;
  expect(await world.payloads('tool_result')).toMatchObject([{ error: "Tool 'look' timed out after 10s" }]);
});

it('shows why a call waits for its sandbox, each reason once', async () => {
  class Waiting extends Tools {
    list(): Promise<ReturnType<typeof toolDescriptor>[]> {
      return Promise.resolve([toolDescriptor({ tool_id: 'look' })]);
    }
    async execute(_invocation: ToolInvocation, options: Parameters<Tools['execute']>[1]): Promise<ToolOutcome> {
      const quota = { sandboxId: 'sb1', state: 'starting', reason: 'quota', message: 'exceeded quota', attempt: 1 };
      for (const wait of [quota, quota, undefined, { ...quota, reason: 'image_pull', attempt: 2 }])
        options.onWaiting?.(wait);
      return { status: 'ok', result: 'seen' };
    }
  }
  const world = await runWorld([{ calls: [{ name: 'look' }] }, DONE], [new Waiting()]);
  await world.session.run('Go.');
  expect(await world.payloads('sandbox_state')).toMatchObject([
    { sandbox_id: 'sb1', state: 'starting', reason: 'quota', message: 'exceeded quota', attempt: 1 },
    { reason: 'image_pull', attempt: 2 },
  ]);
});

it('writes down what happened to its workspace', async () => {
  class Restored extends Tools {
    list(): Promise<ReturnType<typeof toolDescriptor>[]> {
      return Promise.resolve([toolDescriptor({ tool_id: 'look' })]);
    }
    async execute(_invocation: ToolInvocation, options: Parameters<Tools['execute']>[1]): Promise<ToolOutcome> {
      options.onNotice?.({ type: 'workspace_restored', payload: { snapshot_id: 'ws1/4', age_seconds: 12 } });
      return { status: 'ok', result: 'seen' };
    }
  }
  const world = await runWorld([{ calls: [{ name: 'look' }] }, DONE], [new Restored()]);
  await world.session.run('Go.');
  expect(await world.payloads('workspace_restored')).toMatchObject([{ snapshot_id: 'ws1/4', age_seconds: 12 }]);
});

describe('repeated reads', () => {
  const version = { mtimeNs: '1', size: 5 };
  const args = { path: 'a.txt' };
  const schema = { type: 'object', properties: { path: { type: 'string' } } };

  /** A file that answers `unchanged` to whoever holds its version. */
  class Files extends Tools {
    readonly asked: ToolInvocation[] = [];
    isCut = false;
    list(): Promise<ReturnType<typeof toolDescriptor>[]> {
      return Promise.resolve([
        toolDescriptor({ tool_id: 'read_file', schema }),
        toolDescriptor({ tool_id: 'edit', effect: 'keyed', schema }),
      ]);
    }
    execute(invocation: ToolInvocation): Promise<ToolOutcome> {
      this.asked.push(invocation);
      if (invocation.toolId === 'edit')
        return Promise.resolve({ status: 'ok', result: 'edited', changedFiles: ['/workspace/a.txt'] });
      if (invocation.ifUnchanged) return Promise.resolve({ status: 'ok', result: '', isUnchanged: true });
      const result = { kind: 'file', path: 'a.txt', text: '1\thello', total_lines: 1, truncated: this.isCut };
      return Promise.resolve({ status: 'ok', result, fileVersion: version });
    }
  }
  const read = { calls: [{ name: 'read_file', args }] };

  it('cost one line while the file stays the same', async () => {
    const files = new Files();
    const world = await runWorld([read, read, DONE], [files]);
    await world.session.run('Go.');
    expect(files.asked.map(({ ifUnchanged }) => ifUnchanged)).toEqual([undefined, version]);
    const [first, second] = world.request(3).messages.filter(({ role }) => role === 'tool');
    expect(first).toMatchObject({ text: expect.stringContaining('hello') });
    const { callId } = first as { callId: string };
    expect(second).toMatchObject({ text: `[a.txt is unchanged since you read it: see the result of call ${callId}]` });
  });

  it('are whole again after an edit, and where the first one was cut', async () => {
    const files = new Files();
    const world = await runWorld([read, { calls: [{ name: 'edit', args }] }, read, DONE], [files]);
    await world.session.run('Go.');
    const cut = new Files();
    cut.isCut = true;
    await (await runWorld([read, read, DONE], [cut])).session.run('Go.');
    expect([...files.asked, ...cut.asked].some(({ ifUnchanged }) => ifUnchanged)).toBe(false);
  });
});
