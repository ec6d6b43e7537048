import type { EventOf } from '@margay/client';
import { diffLines, type DiffLine } from './diff-lines';
import { cut, oneLine, sanitize } from './sanitize';
import type { Style } from './style';
import { outcomeOf, subjectOf, type ToolOutcome } from './tool-result';

type Payload = EventOf<'tool_result'>['payload'];

export interface Card {
  mark: '●' | '✗' | '?';
  /** The tool's name. */
  tool: string;
  /** What it was about and how it went, in short parts. */
  facts: string[];
  body: string[];
}

const MAX_OUTPUT_LINES = 5;
const MAX_DIFF_LINES = 40;
const MAX_SUBJECT = 80;

export const seconds = (ms: number): string => `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
const plural = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? '' : 's'}`;

/** The card of a finished call, harmless and without colours but in its diff. */
export function cardOf(payload: Payload, style: Style): Card {
  const outcome = outcomeOf(payload);
  const subject = cut(oneLine(subjectOf(payload.tool_input) || subjectOfOutcome(outcome)), MAX_SUBJECT);
  const time = payload.duration_ms === undefined ? [] : [seconds(payload.duration_ms)];
  const isUnknown = payload.outcome === 'unknown';
  const mark = isUnknown ? '?' : payload.success ? '●' : '✗';
  const note = isUnknown ? ['it may have happened'] : payload.success ? [] : ['failed'];
  return {
    mark,
    tool: oneLine(payload.tool_id),
    facts: [subject, ...note, ...factsOf(outcome, payload), ...time].filter(Boolean),
    body: payload.success ? bodyOf(outcome, style) : errorLines(payload, outcome, style),
  };
}

const subjectOfOutcome = (outcome: ToolOutcome): string => {
  if (outcome.kind === 'file' || outcome.kind === 'dir') return outcome.path;
  if (outcome.kind === 'shell') return outcome.command;
  return outcome.kind === 'diff' ? outcome.title : '';
};

function factsOf(outcome: ToolOutcome, payload: Payload): string[] {
  if (outcome.kind === 'file') return [plural(outcome.totalLines, 'line')];
  if (outcome.kind === 'dir') return [outcome.entries === 1 ? '1 entry' : `${outcome.entries} entries`];
  if (outcome.kind === 'shell') return outcome.exitCode === undefined ? [] : [`exit ${outcome.exitCode}`];
  if (outcome.kind === 'diff') return [changeCount(diffLines(outcome.diff))];
  return payload.success ? [cut(oneLine(payload.summary || outcome.text), MAX_SUBJECT)] : [];
}

function changeCount(lines: DiffLine[]): string {
  const count = (sign: DiffLine['sign']): number => lines.filter((line) => line.sign === sign).length;
  return `+${count('+')} −${count('-')}`;
}

function bodyOf(outcome: ToolOutcome, style: Style): string[] {
  if (outcome.kind === 'shell') return lastLines(outcome.output);
  if (outcome.kind === 'diff') return diffBody(diffLines(sanitize(outcome.diff)), style);
  return [];
}

function errorLines(payload: Payload, outcome: ToolOutcome, style: Style): string[] {
  const body = bodyOf(outcome, style);
  const error = payload.error ?? payload.summary;
  return body.length || !error ? body : lastLines(error);
}

function lastLines(output: string): string[] {
  const lines = sanitize(output).trimEnd().split('\n');
  const shown = lines.slice(-MAX_OUTPUT_LINES);
  const missing = lines.length - shown.length;
  if (shown.every((line) => line === '')) return [];
  return missing ? [`+${missing} earlier`, ...shown] : shown;
}

function diffBody(lines: DiffLine[], style: Style): string[] {
  const width = String(Math.max(0, ...lines.map((line) => line.number ?? 0))).length;
  const shown = lines.slice(0, MAX_DIFF_LINES).map((line) => diffText(line, width, style));
  return lines.length > MAX_DIFF_LINES ? [...shown, `+${lines.length - MAX_DIFF_LINES} more`] : shown;
}

function diffText({ sign, number, text }: DiffLine, width: number, style: Style): string {
  const gutter = String(number ?? '').padStart(width);
  if (sign === '+') return style.green(`${gutter} + ${text}`);
  if (sign === '-') return style.red(`${gutter} - ${text}`);
  return sign === ' ' ? `${gutter}   ${text}` : style.dim(text);
}
