import type { EventOf, StreamItem } from '@margay/client';
import { QuickClock } from '@margay/testing';
import { FakeTerminal } from '../fake-terminal';
import { cardOf } from './card';
import { diffLines } from './diff-lines';
import { JsonRenderer, QuietRenderer } from './machine-renderers';
import { PlainRenderer } from './plain-renderer';
import { PrettyRenderer } from './pretty-renderer';
import type { Renderer } from './renderer';
import { oneLine, PieceSanitizer, sanitize } from './sanitize';
import { COLORS, NO_COLORS } from './style';

const ESC = '\x1b';
const HOSTILE = [
  `${ESC}]52;c;ZXZpbA==\x07`, // writes the clipboard
  `${ESC}]0;title${ESC}\\`,
  `${ESC}[2J${ESC}[1;1H`,
  `${ESC}P+q544e${ESC}\\`,
  '\x9b31m\x9d0;x\x9c',
  '\x07\x08\x00\x7f',
  '\u202etxt.exe\u202c',
  '\u200b\ufeff\u2066',
  `${ESC}c${ESC}(0${ESC}7`,
].join('|');
const HARMFUL = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/;

let seq = 0;
const at = { ts: '2026-08-03T10:15:42.000001+00:00', run_id: 'r' };
const event = (type: string, payload: object): StreamItem =>
  ({ ...at, seq: (seq += 1), type, payload }) as unknown as StreamItem;
const delta = (text: string, offset: number, step = 1): StreamItem =>
  ({ ...at, type: 'agent_message_delta', payload: { text, offset, step, agent_id: 'root', depth: 0 } }) as StreamItem;
const message = (text: string): StreamItem => event('agent_message', { text, agent_id: 'root', depth: 0 });
const toolResult = (payload: object): StreamItem =>
  event('tool_result', {
    operation: 'get',
    tool_input: {},
    success: true,
    summary: '',
    agent_id: 'root',
    model: 'm',
    result: '',
    ...payload,
  });

const terminal = (): FakeTerminal => new FakeTerminal(new QuickClock(), {}, { isTerminal: true });

function shown(make: (terminal: FakeTerminal) => Renderer, items: StreamItem[]): string {
  const screen = terminal();
  const renderer = make(screen);
  for (const item of items) renderer.item(item);
  renderer.end();
  // Live lines are overwritten: what stays is what a person sees.
  return screen.stdout.text.replace(/[^\n]*\r\x1b\[2K/g, '');
}

const pretty = (...items: StreamItem[]): string =>
  shown((screen) => new PrettyRenderer(screen, NO_COLORS, false), items);
const plain = (...items: StreamItem[]): string => shown((screen) => new PlainRenderer(screen), items);

describe('hostile text', () => {
  it('loses every sequence, control character and reordering mark', () => {
    expect(sanitize(HOSTILE)).toBe('||||||txt.exe||');
    expect(sanitize('a\r\nb\rc\u2028d\te')).toBe('a\nb\nc\nd\te');
    expect(oneLine(' a\n b ')).toBe('a b');
    expect(sanitize('Grüße 🐈 é')).toBe('Grüße 🐈 é');
  });

  it('stays harmless wherever it is cut, and loses the whole sequence', () => {
    const text = `before ${HOSTILE} after`;
    for (let cutAt = 0; cutAt <= text.length; cutAt += 1) {
      const pieces = new PieceSanitizer();
      const out = pieces.push(text.slice(0, cutAt)) + pieces.push(text.slice(cutAt)) + pieces.flush();
      expect(out).toBe('before ||||||txt.exe|| after');
    }
  });

  it('cannot hide what follows an open sequence', () => {
    const pieces = new PieceSanitizer();
    const out = pieces.push(`${ESC}]`) + pieces.push('x'.repeat(300)) + pieces.push(' seen') + pieces.flush();
    expect(out).toMatch(/x seen$/);
    expect(out).not.toMatch(HARMFUL);
  });

  it.each(['pretty', 'plain', 'quiet', 'json'])('never reaches a terminal through any field (%s)', (name) => {
    const make: Record<string, (screen: FakeTerminal) => Renderer> = {
      pretty: (screen) => new PrettyRenderer(screen, NO_COLORS, true),
      plain: (screen) => new PlainRenderer(screen),
      quiet: (screen) => new QuietRenderer(screen),
      json: (screen) => new JsonRenderer(screen, true),
    };
    const items = [
      event('user', { text: HOSTILE }),
      event('llm_retry', { agent_id: 'root', depth: 0, attempt: 1, max_attempts: 2, error: HOSTILE }),
      event('llm_fallback', { from_model: HOSTILE, to_model: HOSTILE, reason: HOSTILE }),
      event('tool_call', { tool_id: HOSTILE, tool_input: { command: HOSTILE }, agent_id: 'root' }),
      toolResult({
        tool_id: HOSTILE,
        tool_input: { path: HOSTILE },
        result: HOSTILE,
        summary: HOSTILE,
        outcome: 'unknown',
      }),
      toolResult({ tool_id: 't', success: false, error: HOSTILE, result: null }),
      toolResult({
        tool_id: 't',
        result: JSON.stringify({ kind: 'shell', command: HOSTILE, stdout: HOSTILE, exit_code: 0 }),
      }),
      toolResult({
        tool_id: 't',
        result: JSON.stringify({ kind: 'diff', title: HOSTILE, text: `@@ -1 +1 @@\n+${HOSTILE}` }),
      }),
      { ...at, seq: 1, type: 'unknown', wire_type: HOSTILE, payload: { summary: HOSTILE } } as StreamItem,
      delta(HOSTILE, 0),
      message(`${HOSTILE} revised`),
      event('assistant', { text: HOSTILE }),
      event('completion', { done: true, done_reason: 'error', error: HOSTILE }),
    ];
    const screen = terminal();
    const renderer = make[name]?.(screen) as Renderer;
    for (const item of items) renderer.item(item);
    renderer.end();
    const own = screen.stdout.text.replaceAll('\r\x1b[2K', '');
    expect(own.length).toBeGreaterThan(5);
    expect(own).not.toMatch(HARMFUL);
    if (name === 'json')
      expect(
        own
          .trim()
          .split('\n')
          .map((line) => JSON.parse(line) as StreamItem)[0],
      ).toEqual(items[0]);
  });
});

describe('streamed text', () => {
  it('comes as it streams and is not repeated by the stored text', () => {
    expect(pretty(delta('Hel', 0), delta('lo', 3), message('Hello'), event('assistant', { text: 'Hello' }))).toBe(
      'Hello\n',
    );
    expect(pretty(delta('Hel', 0), delta('lo', 3), event('assistant', { text: 'Hello' }))).toBe('Hello\n');
    expect(pretty(message('Hello'), event('assistant', { text: 'Hello' }))).toBe('Hello\n');
    expect(pretty(event('assistant', { text: 'Hello' }))).toBe('Hello\n');
  });

  it('gets its missing end from the stored text', () => {
    expect(pretty(delta('Hel', 0), message('Hello'))).toBe('Hello\n');
  });

  it('is printed again where the stored text differs', () => {
    expect(pretty(delta('Helo', 0), message('Hello'))).toBe('Helo\nrevised:\nHello\n');
    expect(pretty(delta('a', 0), delta('c', 2), message('abc'))).toBe('a…c\nrevised:\nabc\n');
  });

  it('starts again when the call is repeated', () => {
    expect(pretty(delta('Hel', 0), delta('Good', 0), message('Good'))).toBe('Hel\nthe model call is repeated\nGood\n');
  });

  it('keeps steps apart', () => {
    expect(pretty(delta('one', 0, 1), message('one'), delta('two', 0, 2), event('assistant', { text: 'two' }))).toBe(
      'one\ntwo\n',
    );
  });
});

describe('cards', () => {
  const json = (fields: object): string => JSON.stringify(fields);

  it('tell what was read and how long it took', () => {
    const read = { tool_id: 'read_file', tool_input: { path: 'src/a.ts' }, duration_ms: 123 };
    expect(
      pretty(toolResult({ ...read, result: json({ kind: 'file', path: 'src/a.ts', text: '', total_lines: 120 }) })),
    ).toBe('● read_file src/a.ts · 120 lines · 0.1 s\n');
  });

  it('show a command, its exit code and its last five lines', () => {
    const stdout = Array.from({ length: 9 }, (_, index) => `line ${index + 1}`).join('\n');
    const result = json({ kind: 'shell', command: 'npm test', exit_code: 1, stdout, stderr: '' });
    expect(
      pretty(toolResult({ tool_id: 'shell', tool_input: { command: 'npm test' }, result, duration_ms: 12_340 })),
    ).toBe(
      '● shell npm test · exit 1 · 12 s\n    +4 earlier\n    line 5\n    line 6\n    line 7\n    line 8\n    line 9\n',
    );
  });

  it('number the lines of a diff and show at most 40', () => {
    const added = Array.from({ length: 60 }, (_, index) => `+new ${index}`).join('\n');
    const text = `--- a/x.ts\n+++ b/x.ts\n@@ -10,2 +10,61 @@\n keep\n-old\n${added}\n`;
    const { facts, body } = cardOf(
      (
        toolResult({
          tool_id: 'edit',
          tool_input: { path: 'x.ts' },
          result: json({ kind: 'diff', text }),
        }) as EventOf<'tool_result'>
      ).payload,
      NO_COLORS,
    );
    expect(facts).toEqual(['x.ts', '+60 −1']);
    expect(body.slice(0, 5)).toEqual(['b/x.ts', '@@ -10,2 +10,61 @@', '10   keep', '11 - old', '11 + new 0']);
    expect(body).toHaveLength(41);
    expect(body.at(-1)).toBe('+24 more');
  });

  it('mark failed and unknown calls by more than colour', () => {
    expect(pretty(toolResult({ tool_id: 'x', success: false, result: null, error: 'ENOENT: no such file' }))).toBe(
      '✗ x failed\n    ENOENT: no such file\n',
    );
    expect(
      pretty(toolResult({ tool_id: 'x', success: false, result: null, outcome: 'unknown', error: 'sandbox lost' })),
    ).toBe('? x it may have happened\n    sandbox lost\n');
  });

  it('fold the calls of sub-agents away', () => {
    const start = event('llm_call_start', { agent_id: 'root', depth: 0, step: 1, model: 'm' });
    expect(pretty(start, toolResult({ tool_id: 'x', agent_id: 'a1' }), toolResult({ tool_id: 'y' }))).toBe('● y\n');
  });
});

it('says retries, fallbacks, compactions and unknown events in a dim line', () => {
  const screen = terminal();
  const renderer = new PrettyRenderer(screen, COLORS, false);
  renderer.item(
    event('llm_retry', {
      agent_id: 'root',
      depth: 0,
      step: 1,
      model: 'm',
      attempt: 2,
      max_attempts: 5,
      error: 'overloaded',
    }),
  );
  renderer.item({
    ...at,
    type: 'unknown',
    wire_type: 'context_compacted',
    payload: { tokens_before: 182_000, tokens_after: 41_000 },
  });
  renderer.item({ ...at, type: 'unknown', wire_type: 'brand_new', payload: {} });
  expect(screen.stdout.text).toBe(
    ['model call repeated (2 of 5) · overloaded', 'context compacted: 182k → 41k tokens', 'brand_new']
      .map((line) => `\x1b[2m${line}\x1b[22m\n`)
      .join(''),
  );
});

it('prints one plain line per event, and the answer as it is', () => {
  const items = [
    event('user', { text: 'do\nit' }),
    message('first\nlook'),
    event('tool_call', { tool_id: 'read_file', tool_input: { path: 'a' }, agent_id: 'root' }),
    message('The\nanswer'),
    event('assistant', { text: 'The\nanswer' }),
    event('completion', { done: true, done_reason: 'completed' }),
  ];
  expect(plain(...items)).toBe(
    '10:15:42 user do it\n10:15:42 agent_message first look\n10:15:42 tool_call read_file a\nThe\nanswer\n10:15:42 completion completed\n',
  );
});

it('gives unknown events back as the wire spelled them', () => {
  const unknown = { ...at, seq: 3, type: 'unknown', wire_type: 'brand_new', payload: { x: 1 } } as StreamItem;
  const line = shown((screen) => new JsonRenderer(screen, false), [unknown, delta('x', 0)]);
  expect(JSON.parse(line)).toEqual({ ...at, seq: 3, type: 'brand_new', payload: { x: 1 } });
});

it('reads a diff of several files', () => {
  const text =
    'diff --git a/a b/a\nindex 1..2\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n\\ No newline\n--- a/b\n+++ b/b\n@@ -5 +7,2 @@ fn\n z\n+w';
  expect(diffLines(text).map(({ sign, number, text: line }) => `${sign}${number ?? ''}:${line}`)).toEqual([
    '#:b/a',
    '@:@@ -1 +1 @@',
    '-1:x',
    '+1:y',
    '#:b/b',
    '@:@@ -5 +7,2 @@ fn',
    ' 7:z',
    '+8:w',
  ]);
});
