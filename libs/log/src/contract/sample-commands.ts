import { bodyHash } from '../build';
import type { Command, RunRequest } from '../command';

/** Commands of the session log with sensible fields; name what a check is about. */
type Fields<K extends Command['kind']> = Partial<Omit<Extract<Command, { kind: K }>, 'kind'>>;

export function createCommand(fields: Fields<'create'> = {}): Extract<Command, { kind: 'create' }> {
  const binding = { project: null, cwd: null };
  return {
    kind: 'create',
    commitId: 'create',
    tenantId: 'tenant',
    owner: 'user',
    tag: null,
    context: {},
    binding,
    ...fields,
  };
}

/** @param text the question; also the commit id */
export function acceptCommand(text: string, fields: Partial<RunRequest> = {}): Extract<Command, { kind: 'accept' }> {
  return { kind: 'accept', commitId: text, run: runRequest(text, fields) };
}

/** @param text the message; also the commit id */
export function messageCommand(text: string, fields: Partial<RunRequest> = {}): Extract<Command, { kind: 'message' }> {
  return { kind: 'message', commitId: text, run: runRequest(text, fields) };
}

export function runRequest(text: string, fields: Partial<RunRequest> = {}): RunRequest {
  return {
    text,
    context: {},
    binding: { project: null, cwd: null },
    attachments: [],
    principal: 'user',
    pool: 'default',
    options: {
      model: 'model',
      fallbackModels: [],
      mode: 'act',
      mcpTools: null,
      capabilities: [],
      stepBudget: 0,
      engineVersion: '1',
    },
    ...fields,
  };
}

/** A command as `fold` takes it. */
export function hashed<C extends Command>(command: C): { command: C; bodyHash: string } {
  return { command, bodyHash: bodyHash(command) };
}
