import type { MargayEvent } from '@margay/client';
import { seconds } from './card';
import { cut, oneLine } from './sanitize';

type Fields = Record<string, unknown>;

const word = (value: unknown): string =>
  typeof value === 'string' || typeof value === 'number' ? oneLine(String(value)) : '';
const thousands = (value: unknown): string => (typeof value === 'number' ? `${Math.round(value / 1000)}k` : '?');
const joined = (...parts: string[]): string => parts.filter(Boolean).join(' · ');

/** One dim sentence on an event that is neither text nor a finished call; undefined where there is nothing to say. */
export function noteOf(event: MargayEvent): string | undefined {
  const fields = event.payload as Fields;
  switch (event.type) {
    case 'llm_retry':
      return joined(
        `model call repeated (${word(fields.attempt)} of ${word(fields.max_attempts)})`,
        word(fields.error),
        typeof fields.delay === 'number' ? `after ${seconds(fields.delay * 1000)}` : '',
      );
    case 'llm_fallback':
      return joined(`model ${word(fields.from_model)} → ${word(fields.to_model)}`, word(fields.reason));
    case 'permission':
      return fields.decision === 'allow'
        ? undefined
        : joined(`permission: ${word(fields.decision)}`, word(fields.tool_id));
    case 'recovery':
      return joined(`recovery: ${word(fields.action)}`, word(fields.tool));
    case 'run_note':
      return word(fields.text);
    case 'sandbox_state':
      return joined(`sandbox: ${word(fields.state)}`, word(fields.reason), word(fields.message));
    case 'workspace_restored':
      return fields.snapshot_id === null ? 'the files of the sandbox were lost' : 'the files are back from a snapshot';
    case 'workspace_forked':
      return 'another session works on this project; this one goes on with a copy';
    case 'session_terminated':
      return 'the session is terminated';
    case 'unknown':
      return noteOfUnknown(event.wire_type, fields);
    default:
      return undefined;
  }
}

function noteOfUnknown(type: string, fields: Fields): string {
  if (type === 'context_compacted')
    return `context compacted: ${thousands(fields.tokens_before)} → ${thousands(fields.tokens_after)} tokens`;
  if (type === 'sub_agent')
    return joined(
      `agent ${word(fields.agent_id)}: ${word(fields.action)}`,
      word(fields.status),
      cut(word(fields.detail), 80),
    );
  if (type === 'trigger_fired') return joined('trigger', word(fields.kind), word(fields.payload_summary));
  return joined(oneLine(type), cut(word(fields.summary ?? fields.reason ?? fields.text), 80));
}
