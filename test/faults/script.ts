import {
  answer,
  byConversation,
  callTools,
  type Answer,
  type ScriptFunction,
  type ScriptedToolCall,
} from '@margay/testing';

/** What one call should leave in the workspace, once. */
export interface Effect {
  /** The line it appends. */
  token: string;
  file: 'count.txt' | 'edits.txt';
  effect: 'keyed' | 'unkeyed';
}

/** Where effects can be counted afterwards. */
export const EFFECT_FILES = [
  { file: 'count.txt', effect: 'unkeyed' },
  { file: 'edits.txt', effect: 'keyed' },
] as const;

/** A conversation of five steps: unkeyed and keyed effects, alone and in one answer, and reads between them. */
const STEPS: readonly ((run: string) => ScriptedToolCall[])[] = [
  (run) => [count(run, 0, 0), edit(run, 0)],
  () => [read('count.txt'), read('edits.txt')],
  (run) => [count(run, 2, 1.2)],
  (run) => [edit(run, 3), count(run, 3, 0.3)],
];

/** The model of a fault run; its answers depend on nothing but the conversation. */
export const faultScript: ScriptFunction = byConversation(({ user, step }): Answer => {
  const run = /run-\d+-\d+/.exec(user)?.[0] ?? 'run-0-0';
  const calls = STEPS[step];
  if (!calls) return answer(`done ${run}`, { chunks: 4, deltaDelayMs: 40, delayMs: 100 });
  return { ...callTools(...calls(run)), delayMs: 80 + 60 * step };
});

/** The effect that a call of the script has; undefined for reads. */
export function effectOf(toolId: string, input: unknown): Effect | undefined {
  const token = /run-\d+-\d+-\d+/.exec(JSON.stringify(input))?.[0];
  if (token === undefined) return undefined;
  return toolId === 'aider_shell_tool'
    ? { token, file: 'count.txt', effect: 'unkeyed' }
    : { token, file: 'edits.txt', effect: 'keyed' };
}

export function count(run: string, step: number, seconds: number): ScriptedToolCall {
  const command = `echo ${run}-${step} >> count.txt; sleep ${seconds}; echo counted`;
  return { name: 'aider_shell_tool', arguments: { command } };
}

/** The same, which ends when there is a file of that name. */
export function countUntil(run: string, step: number, file: string): ScriptedToolCall {
  const command = `echo ${run}-${step} >> count.txt; until [ -e ${file} ]; do sleep 0.1; done; echo counted`;
  return { name: 'aider_shell_tool', arguments: { command } };
}

/** Appends a block, since appending is what an edit run twice would show. */
export function edit(run: string, step: number): ScriptedToolCall {
  const content = `edits.txt\n\`\`\`text\n<<<<<<< SEARCH\n=======\n${run}-${step}\n>>>>>>> REPLACE\n\`\`\`\n`;
  return { name: 'aider_edit_block_tool', arguments: { content } };
}

export function read(path: string): ScriptedToolCall {
  return { name: 'read_file', arguments: { path } };
}
