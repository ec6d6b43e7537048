import { assertPaired, FakeSandbox, runWorld, toolDescriptor, until, type ScriptedAnswer } from '@margay/testing';
import { Tools, type ToolInvocation, type ToolOutcome } from '../index';

const DONE: ScriptedAnswer = { text: 'Done.' };
const look = toolDescriptor({ tool_id: 'look' });
const many = (count: number): ScriptedAnswer => ({ calls: Array.from({ length: count }, () => ({ name: 'look' })) });
const sandboxOf = (): FakeSandbox =>
  new FakeSandbox([{ descriptor: look, run: () => ({ status: 'ok', result: 'seen' }) }], {
    incarnation: 'one',
    results: new Map(),
  });

describe('an answer with too many calls', () => {
  it('gets 128 of them run, and each of the others refused in words', async () => {
    const sandbox = sandboxOf();
    const world = await runWorld([many(200), DONE], [sandbox]);
    expect(await world.session.run('Go.')).toMatchObject({ doneReason: 'completed', text: 'Done.' });
    expect(sandbox.ran).toHaveLength(128);
    const results = await world.payloads('tool_result');
    expect(results).toHaveLength(200);
    expect(results.filter(({ success }) => success === true)).toHaveLength(128);
    expect(results.find(({ success }) => success === false)).toMatchObject({
      error: expect.stringMatching(/^not run: one answer may make 128 calls/),
    });
    const told = world.request(2).messages.filter(({ role }) => role === 'tool');
    expect(told).toHaveLength(200);
    expect(told.at(-1)).toMatchObject({ isError: true, text: expect.stringMatching(/make the rest in the next one$/) });
    expect(await world.types()).not.toContain('run_note');
  });

  it('of thousands has most left out, which model and person are told', async () => {
    const sandbox = sandboxOf();
    const world = await runWorld([many(5_000), DONE], [sandbox]);
    expect(await world.session.run('Go.')).toMatchObject({ doneReason: 'completed', text: 'Done.' });
    expect(sandbox.ran).toHaveLength(128);
    const request = world.request(2);
    assertPaired(request);
    expect(request.messages.filter(({ role }) => role === 'tool')).toHaveLength(256);
    const notes = request.messages
      .filter(({ role }) => role === 'system')
      .map((message) => 'text' in message && message.text);
    expect(notes).toContainEqual(
      expect.stringMatching(/^Your last answer made 5000 tool calls\. The first 128 were run/),
    );
    expect(await world.payloads('run_note')).toEqual([
      { text: 'The model made 5000 tool calls in one answer; most were refused.' },
    ]);
  });

  it('is no sign of going in circles: five refused calls in a row do not halt the run', async () => {
    const sandbox = sandboxOf();
    const world = await runWorld([many(140), { calls: [{ name: 'look' }] }, DONE], [sandbox]);
    expect(await world.session.run('Go.')).toMatchObject({ doneReason: 'completed', text: 'Done.' });
    expect(sandbox.ran).toHaveLength(129);
  });
});

describe('a call outside the sandbox', () => {
  /** Notes what it is asked. */
  class Outside extends Tools {
    readonly asked: string[] = [];
    outcome: ToolOutcome = { status: 'ok', result: 'sent' };

    list(): Promise<ReturnType<typeof toolDescriptor>[]> {
      return Promise.resolve([toolDescriptor({ tool_id: 'mail', effect: 'unkeyed', placement: 'outside' })]);
    }

    execute(invocation: ToolInvocation, { incarnation }: { incarnation: string }): Promise<ToolOutcome> {
      this.asked.push(`${invocation.toolId}@${incarnation}`);
      return Promise.resolve(this.outcome);
    }
  }
  const mail: ScriptedAnswer = { calls: [{ name: 'mail' }] };

  it('waits for no sandbox and commits to none', async () => {
    const outside = new Outside();
    const world = await runWorld([mail, DONE], [outside]);
    await world.session.run('Go.');
    expect(outside.asked).toEqual(['mail@']);
    expect((await world.session.head()).sandbox).toBeNull();
  });

  it('whose outcome is unknown is told to the model, the transcript and the person', async () => {
    const outside = new Outside();
    outside.outcome = { status: 'unknown', result: null, error: 'no answer came' };
    const world = await runWorld([mail, DONE], [outside]);
    await world.session.run('Go.');
    const told = world.request(2).messages.find(({ role }) => role === 'tool');
    expect(told).toMatchObject({
      isError: true,
      text: "ERROR: The outcome of 'mail' is unknown: it may or may not have taken effect: no answer came. Check before repeating it",
    });
    expect(await world.payloads('tool_result')).toMatchObject([{ outcome: 'unknown', success: false }]);
    const [note] = await world.payloads('run_note');
    expect(note?.['text']).toMatch(/^It is unknown whether call \S+ of 'mail' took effect\. It was not repeated; look/);
  });

  it('that is never answered is unknown, too, and not called a time-out', async () => {
    const outside = new Outside();
    jest.spyOn(outside, 'execute').mockImplementation(() => new Promise(() => undefined));
    const world = await runWorld([mail, DONE], [outside]);
    const running = world.session.run('Go.');
    await until(() => jest.mocked(outside.execute).mock.calls.length === 1);
    await world.clock.advance(120_000);
    await running;
    expect(await world.payloads('tool_result')).toMatchObject([{ outcome: 'unknown', success: false }]);
  });
});
