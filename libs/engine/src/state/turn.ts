import { canonicalJson } from '@margay/log';
import type { ModelMessage } from '../ports';
import { parseModelJson } from '../tools/parse-json';
import type { AssistantRecord, RecordedCall, ToolRecord } from './records';

export const INTERRUPTED_RESULT = '[Tool execution was interrupted]';

/** One answer with tool calls and what came back for them. */
export class Turn {
  private readonly results = new Map<string, ToolRecord>();
  /** Sandboxes at which calls of this turn may have been sent. */
  readonly incarnations = new Set<string>();
  /** Equal for turns that call the same tools with the same arguments. */
  readonly signature: string;

  constructor(readonly record: AssistantRecord) {
    if (record.incarnation !== undefined) this.incarnations.add(record.incarnation);
    this.signature = record.toolCalls.map((call) => `${call.name} ${sortedArguments(call.argumentsText)}`).join('\n');
  }

  get calls(): RecordedCall[] {
    return this.record.toolCalls;
  }

  get unanswered(): RecordedCall[] {
    return this.calls.filter(({ callId }) => !this.results.has(callId));
  }

  get failed(): number {
    return [...this.results.values()].filter(({ isError }) => isError).length;
  }

  get isAnswered(): boolean {
    return this.results.size === this.calls.length;
  }

  /** @returns false for a result that nothing asked for */
  add(result: ToolRecord): boolean {
    if (!this.calls.some(({ callId }) => callId === result.callId)) return false;
    this.results.set(result.callId, result);
    return true;
  }

  /** In call order; a call that was never answered gets a synthetic result, so that pairs stay whole. */
  toolMessages(): ModelMessage[] {
    return this.calls.map(({ callId }) => {
      const result = this.results.get(callId);
      const images = result?.images ? { images: result.images } : {};
      return {
        role: 'tool',
        callId,
        text: result?.text ?? INTERRUPTED_RESULT,
        isError: result?.isError ?? true,
        ...images,
      };
    });
  }

  hasSameOutcome(other: Turn): boolean {
    return (
      this.signature === other.signature &&
      this.calls.every(({ callId }, index) => {
        const theirs = other.results.get(other.calls[index]?.callId ?? '');
        return this.results.get(callId)?.text === theirs?.text;
      })
    );
  }
}

function sortedArguments(text: string): string {
  try {
    return canonicalJson(parseModelJson(text));
  } catch {
    return text; // malformed arguments are compared as they are
  }
}
