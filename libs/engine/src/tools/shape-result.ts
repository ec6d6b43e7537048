import { stripVTControlCharacters } from 'node:util';
import type { ToolDescriptor } from '@margay/contracts';
import { SANDBOX_LOST, type ModelImage, type ToolOutcome } from '../ports';
import { summarise } from './summary';
import { cutObject, cutOf, cutText } from './truncate';

export interface ShapedResult {
  /** Exactly what the model gets. */
  text: string;
  isError: boolean;
  images?: ModelImage[];
  /** The event's copy, whole; null on failures. */
  eventResult: string | null;
  summary: string;
  error?: string;
  /** Set where the call did not simply succeed or fail. */
  outcome?: string;
  /** The model got all of it. */
  isWhole: boolean;
}

/** A failed result of the engine's own, e.g. for a tool that does not exist. */
export function failedResult(message: string, outcome?: string): ShapedResult {
  const text = `ERROR: ${message}`;
  return {
    text,
    isError: true,
    eventResult: null,
    summary: summarise(undefined, text),
    error: message,
    isWhole: true,
    ...(outcome === undefined ? {} : { outcome }),
  };
}

export interface ShapeOptions {
  descriptor: ToolDescriptor;
  timeoutSeconds: number;
  /** Cap on the model's text; 0 = none. */
  maxChars: number;
  /** What the model reads instead of a file it already holds. */
  unchangedText: string;
}

/** What the model and the transcript get of a call's outcome. */
export function shapeResult(outcome: ToolOutcome, options: ShapeOptions): ShapedResult {
  const images = outcome.images && outcome.images.length > 0 ? { images: outcome.images } : {};
  if (outcome.status !== 'ok') return { ...shapeFailure(outcome, options), ...images };
  if (outcome.isUnchanged) return succeeded(options.unchangedText, options.unchangedText, undefined, true);
  if (isEnvelope(outcome.result)) return shapeEnvelope(outcome.result);
  const result = clean(outcome.result);
  const whole = typeof result === 'string' ? result : JSON.stringify(result ?? null);
  const text = cut(result, whole, options);
  return { ...succeeded(text, whole, result, text === whole), ...images };
}

function succeeded(text: string, whole: string, result: unknown, isWhole: boolean): ShapedResult {
  return {
    text: text === '' ? '(no content)' : text,
    isError: false,
    eventResult: whole,
    summary: summarise(result, whole),
    isWhole,
  };
}

function cut(result: unknown, whole: string, { descriptor, maxChars }: ShapeOptions): string {
  if (maxChars === 0 || whole.length <= maxChars) return whole;
  const how = cutOf(descriptor, maxChars);
  return isObject(result) ? cutObject(result, how) : cutText(whole, how);
}

function shapeFailure(outcome: ToolOutcome, options: ShapeOptions): ShapedResult {
  const { tool_id: toolId } = options.descriptor;
  const detail = outcome.error ? `: ${stripVTControlCharacters(outcome.error)}` : '';
  switch (outcome.status) {
    case 'timed_out':
      return failedResult(`Tool '${toolId}' timed out after ${options.timeoutSeconds}s`, 'timed_out');
    case 'killed':
      return failedResult(`Tool '${toolId}' was killed${detail}`, 'killed');
    case 'cancelled':
      return failedResult(`Tool '${toolId}' was cancelled${detail}`, 'cancelled');
    case 'unknown': {
      const unknown = failedResult(
        `The outcome of '${toolId}' is unknown: it may or may not have taken effect${detail}. Check before repeating it`,
        'unknown',
      );
      return outcome.error === SANDBOX_LOST ? { ...unknown, error: SANDBOX_LOST } : unknown;
    }
    default:
      return shapeError(outcome, options);
  }
}

/** A tool that failed may still have said something. */
function shapeError(outcome: ToolOutcome, options: ShapeOptions): ShapedResult {
  const result = clean(outcome.result ?? '');
  const said = typeof result === 'string' ? result : JSON.stringify(result);
  const message = stripVTControlCharacters(outcome.error ?? '') || `Tool '${options.descriptor.tool_id}' failed`;
  const failed = failedResult(message);
  if (said === '' || said === '{}' || said === message) return failed;
  return { ...failed, text: `${failed.text}\n${cut(result, said, options)}` };
}

interface ErrorEnvelope {
  error: { code: string; message: string };
}

/** Session tools return this instead of failing; the model receives it whole. */
function isEnvelope(result: unknown): result is ErrorEnvelope {
  if (!isObject(result) || !isObject(result['error'])) return false;
  return typeof result['error']['code'] === 'string' && typeof result['error']['message'] === 'string';
}

function shapeEnvelope(result: ErrorEnvelope): ShapedResult {
  return { ...failedResult(result.error.message), text: JSON.stringify(result) };
}

/** The result without terminal control characters in its texts. */
function clean(value: unknown): unknown {
  if (typeof value === 'string') return stripVTControlCharacters(value);
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, field]) => [
      key,
      typeof field === 'string' ? stripVTControlCharacters(field) : field,
    ]),
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}
