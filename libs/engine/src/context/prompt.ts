import { sha256Hex } from '@margay/log';
import type { ModelMessage } from '../ports';
import { BASE_PROMPT } from './base-prompt';
import type { ToolRegistry } from '../tools/registry';

/** What the prefix is made of; none of it changes during a run. */
export interface PromptFacts {
  tools: ToolRegistry;
  mode: 'act' | 'plan';
  /** Lines such as `Working directory: /workspace`. */
  environment: readonly string[];
  /** Texts of the operator and the project, most general first. */
  instructions: readonly string[];
}

/** What the tail is made of; it is made anew for each request and never stored. */
export interface TailFacts {
  nowMs: number;
  /** Undefined = unlimited. */
  stepsLeft: number | undefined;
}

/**
 * The order of the prompt, the only place that knows it: static prefix, then the conversation, then the tail. The prefix
 * and the conversation only ever grow at their end, so that a provider's cache holds them.
 */
const PREFIX: readonly ((facts: PromptFacts) => string)[] = [
  () => BASE_PROMPT,
  ({ environment }) => section('Environment', environment.map((line) => `- ${line}`).join('\n')),
  ({ tools }) => section('Tools', toolGuidance(tools)),
  ({ instructions }) => section('Instructions', instructions.join('\n\n')),
  ({ mode }) => (mode === 'plan' ? PLAN_MODE : ''),
];

const TAIL: readonly ((facts: TailFacts) => string)[] = [
  ({ nowMs }) => `Date: ${new Date(nowMs).toISOString().slice(0, 10)}`,
  ({ stepsLeft }) => (stepsLeft === undefined ? '' : `Steps left: ${stepsLeft}`),
];

const PLAN_MODE = `# Plan mode
Only look, change nothing: tools that change things are withheld. Answer with a plan that a person can decide on.`;

export function promptPrefix(facts: PromptFacts): { text: string; sha256: string } {
  const text = join(PREFIX.map((part) => part(facts)));
  return { text, sha256: sha256Hex(text) };
}

export function promptTail(facts: TailFacts): ModelMessage {
  return {
    role: 'system',
    text: `[Now]\n${join(
      TAIL.map((part) => part(facts)),
      '\n',
    )}`,
  };
}

function toolGuidance({ descriptors }: ToolRegistry): string {
  return descriptors
    .filter(({ guidance }) => guidance !== '')
    .map(({ tool_id, guidance }) => `## ${tool_id}\n${guidance}`)
    .join('\n\n');
}

function section(title: string, body: string): string {
  return body === '' ? '' : `# ${title}\n${body}`;
}

function join(parts: readonly string[], separator = '\n\n'): string {
  return parts.filter((part) => part !== '').join(separator);
}
