import { toolDescriptor } from '@margay/testing';
import type { ToolOutcome } from '../ports';
import { shapeResult } from './shape-result';

const shape = (outcome: Partial<ToolOutcome>, fields: Parameters<typeof toolDescriptor>[0] = { tool_id: 'tool' }) => {
  const descriptor = toolDescriptor(fields);
  return shapeResult(
    { status: 'ok', result: '', ...outcome },
    { descriptor, timeoutSeconds: 30, maxChars: descriptor.max_result_chars, unchangedText: '[unchanged]' },
  );
};

it('strips terminal control characters', () => {
  expect(shape({ result: '\u001b[31mred\u001b[0m' })).toMatchObject({ text: 'red', eventResult: 'red' });
  const shell = { kind: 'shell', stdout: '\u001b[1mbold\u001b[0m', exit_code: 0, command: 'ls' };
  expect(JSON.parse(shape({ result: shell }).text)).toMatchObject({ stdout: 'bold' });
});

it('cuts a long text to its head and tail, and says how much there is and how to get it', () => {
  const result = `${'a'.repeat(5_000)}${'z'.repeat(5_000)}`;
  const { text, eventResult, isWhole } = shape({ result }, { tool_id: 'read_file', max_result_chars: 1_200 });
  expect(text.length).toBeLessThanOrEqual(1_200);
  expect(text).toMatch(/^a+\n\[\.\.\. cut: 10000 characters in all, at most 1200 shown; call read_file.*\.\.\.\]\nz+$/);
  const [head = '', tail = ''] = text.split(/\n\[.*\]\n/);
  expect(head.length / (head.length + tail.length)).toBeCloseTo(2 / 3, 1);
  expect(eventResult).toBe(result);
  expect(isWhole).toBe(false);
});

it('never cuts a character in half', () => {
  for (let max_result_chars = 400; max_result_chars < 420; max_result_chars += 1) {
    const { text } = shape({ result: '🐈'.repeat(1_000) }, { tool_id: 'tool', max_result_chars });
    expect(text.isWellFormed()).toBe(true);
  }
});

it('keeps an object valid JSON by cutting its texts only', () => {
  const result = {
    kind: 'shell',
    command: 'make',
    exit_code: 2,
    stdout: 'x"\n'.repeat(9_000),
    stderr: 'y'.repeat(100),
  };
  const truncate = { head: 0.25, tail: 0.75 };
  const { text } = shape({ result }, { tool_id: 'aider_shell_tool', max_result_chars: 2_000, truncate });
  expect(text.length).toBeLessThanOrEqual(2_000);
  const parsed = JSON.parse(text) as typeof result;
  expect(parsed).toMatchObject({ kind: 'shell', command: 'make', exit_code: 2, stderr: 'y'.repeat(100) });
  expect(parsed.stdout).toContain('characters in all');
});

it('drops whole elements of lists, with their number', () => {
  const entries = Array.from({ length: 500 }, (_, index) => `file-${index}.txt`);
  const { text } = shape({ result: { kind: 'dir', path: '.', entries } }, { tool_id: 'ls', max_result_chars: 1_000 });
  const parsed = JSON.parse(text) as { entries: string[]; entries_omitted: number };
  expect(parsed.entries.length + parsed.entries_omitted).toBe(500);
  expect(parsed.entries.length).toBeGreaterThan(20);
});

it('wraps an object that has nothing to cut', () => {
  const result = { facts: Object.fromEntries(Array.from({ length: 400 }, (_, index) => [`k${index}`, index])) };
  const { text } = shape({ result }, { tool_id: 'tool', max_result_chars: 500 });
  expect(text.length).toBeLessThanOrEqual(500);
  expect(JSON.parse(text)).toMatchObject({ truncated: true });
});

it('cuts nothing without a cap', () => {
  const result = 'x'.repeat(200_000);
  expect(shape({ result }, { tool_id: 'tool', max_result_chars: 0 }).text).toBe(result);
});

it.each<[ToolOutcome['status'], string]>([
  ['error', 'ERROR: no luck'],
  ['timed_out', "ERROR: Tool 'tool' timed out after 30s"],
  ['killed', "ERROR: Tool 'tool' was killed: no luck"],
  ['cancelled', "ERROR: Tool 'tool' was cancelled: no luck"],
  [
    'unknown',
    "ERROR: The outcome of 'tool' is unknown: it may or may not have taken effect: no luck. Check before repeating it",
  ],
])('turns the outcome %s into a failed result', (status, text) => {
  const shaped = shape({ status, result: null, error: 'no luck' });
  expect(shaped).toMatchObject({ text, isError: true, eventResult: null });
  expect(shaped.summary).toMatch(/^ERROR: /);
});

it('says of a lost sandbox in one word that events can be searched for', () => {
  const shaped = shape({ status: 'unknown', result: null, error: 'sandbox_lost' });
  expect(shaped).toMatchObject({
    error: 'sandbox_lost',
    outcome: 'unknown',
    text: expect.stringContaining('sandbox_lost. Check'),
  });
});

it('tells the model what a failed tool said', () => {
  expect(shape({ status: 'error', result: 'line 3: oops', error: 'exit code 1' })).toMatchObject({
    text: 'ERROR: exit code 1\nline 3: oops',
    error: 'exit code 1',
  });
});

it('takes a returned error envelope for a failure, and hands it on whole', () => {
  const result = { error: { code: 'forbidden', message: 'not yours', permanence: 'permanent' } };
  expect(shape({ result })).toMatchObject({ isError: true, error: 'not yours', text: JSON.stringify(result) });
});

it('stands in for a file that did not change', () => {
  expect(shape({ isUnchanged: true, result: '' })).toMatchObject({ text: '[unchanged]', isError: false });
});

it('says something where there is nothing', () => {
  expect(shape({ result: '' })).toMatchObject({ text: '(no content)', eventResult: '' });
});

it.each([
  [{ kind: 'shell', command: 'ls', exit_code: 0 }, 'exit code 0: ls'],
  [{ kind: 'file', path: 'a.ts', total_lines: 3, text: '' }, 'a.ts (3 lines)'],
  [{ kind: 'dir', path: 'src', entries: ['a', 'b'] }, 'src (2 entries)'],
  [{ kind: 'diff', title: 'Edited a.ts', text: '' }, 'Edited a.ts'],
])('summarises %j', (result, summary) => {
  expect(shape({ result }).summary).toBe(summary);
});
