import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { check, type Played } from './check';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'margay-check-'));
  workspace(['run-0-0-0'], ['run-0-0-0']);
});
afterEach(() => rmSync(folder, { recursive: true }));

function workspace(counted: string[], edited: string[]): void {
  writeFileSync(join(folder, 'count.txt'), counted.map((line) => `${line}\n`).join(''));
  writeFileSync(join(folder, 'edits.txt'), edited.map((line) => `${line}\n`).join(''));
}

const shell = { tool_call_id: 's.1.1.0', tool_id: 'aider_shell_tool', tool_input: { command: 'echo run-0-0-0' } };
const edit = { tool_call_id: 's.1.1.1', tool_id: 'aider_edit_block_tool', tool_input: { content: 'run-0-0-0' } };

/** A log as it should be; parts of it can be replaced. */
function log(
  results: object[] = [
    { ...shell, success: true },
    { ...edit, success: true },
  ],
): string[] {
  return numbered([
    { type: 'user', payload: {} },
    { type: 'tool_call', payload: shell },
    { type: 'tool_call', payload: edit },
    ...results.map((payload) => ({ type: 'tool_result', payload })),
    { type: 'assistant', payload: {} },
    { type: 'completion', payload: { done_reason: 'completed' } },
  ]);
}

function numbered(events: object[]): string[] {
  return events.map((event, index) =>
    JSON.stringify({ ...event, seq: index + 1, ts: `2030-01-01T00:00:00.${100 + index}` }),
  );
}

async function violations(stored: string[], more: Partial<Played> = {}): Promise<string> {
  const runs = [{ name: 'run-0-0', acceptedAt: 1, endedAt: 2 }];
  const played: Played = { sessionId: 's', folder, runs, recording: stored, ...more };
  return (await check(played, stored)).violations.join('\n');
}

describe('the checker of fault rounds', () => {
  it('is content with a log, a recording and effects that fit each other', async () => {
    expect(await violations(log())).toBe('');
  });

  it('sees an effect that happened twice, or not although it was claimed', async () => {
    workspace(['run-0-0-0', 'run-0-0-0'], ['run-0-0-0']);
    expect(await violations(log())).toContain('(unkeyed) took effect 2 times');
    workspace([], ['run-0-0-0']);
    expect(await violations(log())).toContain('(unkeyed) took effect 0 times');
    workspace(['run-0-0-0'], []);
    expect(await violations(log())).toContain('(keyed) took effect 0 times');
  });

  it('lets an unkeyed call be unknown, but not happen twice, and no keyed one', async () => {
    const unknown = { success: false, error: 'whether it took effect is unknown' };
    expect(
      await violations(
        log([
          { ...shell, ...unknown },
          { ...edit, success: true },
        ]),
      ),
    ).toBe('');
    expect(
      await violations(
        log([
          { ...shell, success: true },
          { ...edit, ...unknown },
        ]),
      ),
    ).toContain('(keyed)');
    workspace(['run-0-0-0', 'run-0-0-0'], ['run-0-0-0']);
    expect(
      await violations(
        log([
          { ...shell, ...unknown },
          { ...edit, success: true },
        ]),
      ),
    ).toContain('2 times');
  });

  it('sees gaps, time that does not rise, and recordings that differ', async () => {
    const stored = log();
    expect(await violations(stored.toSpliced(2, 1))).toContain('event 3 has seq 4');
    const late = stored.with(1, (stored[1] ?? '').replace('00.101', '00.100'));
    expect(await violations(late)).toContain('ts of seq 2 does not rise');
    expect(await violations(stored, { recording: stored.slice(0, -1) })).toContain(
      `${stored.length - 1} of ${stored.length} frames`,
    );
    expect(await violations(stored, { recording: stored.with(0, '{}') })).toContain('at frame 1');
  });

  it('sees stuck runs, second completions, lost queries and calls without a result', async () => {
    const stored = log();
    expect(await violations(stored, { runs: [{ name: 'run-0-0', acceptedAt: 1 }] })).toContain('run-0-0 is stuck');
    const events = stored.map((text) => JSON.parse(text) as object);
    expect(await violations(numbered([...events, ...events.slice(-1)]))).toContain('2 completions');
    expect(await violations(log([{ ...shell, success: true }]))).toContain('have results');
    expect(await violations(numbered(events.slice(1)))).toContain('1 queries were accepted, 0 are stored');
  });
});
