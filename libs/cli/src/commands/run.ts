import { resolve } from 'node:path';
import { InvalidArgumentError, type CreateOptions, type Run, type Session } from '@margay/client';
import type { CommandContext } from '../command-context';
import { EXIT } from '../failures';
import { sessionIdOf } from '../session-reference';
import { exitCodeOfStatus, watch, type WatchEnd } from '../watch';

export interface RunOptions {
  session?: string;
  project?: string;
  cwd?: string;
  model?: string;
  mode?: 'plan' | 'act';
  tag?: string;
  detach?: boolean;
  /** Milliseconds. */
  timeLimit?: number;
}

/** One task, streamed; the exit code tells how it ended. */
export async function run(context: CommandContext, words: string[], options: RunOptions): Promise<number> {
  const text = await taskText(context, words);
  const session = await sessionFor(context, options);
  const { profile } = await context.connect();
  const model = options.model ?? profile.model;
  const mode = options.mode ?? profile.mode;
  const started = await session.query(text, { ...(model ? { model } : {}), ...(mode ? { mode } : {}) });
  return options.detach ? detached(context, started) : watchRun(context, started, options.timeLimit);
}

export async function taskText(context: CommandContext, words: string[]): Promise<string> {
  const text = words.join(' ') === '-' ? await context.terminal.readInput() : words.join(' ');
  if (text.trim()) return text;
  throw new InvalidArgumentError('usage', 'the text is empty: there is nothing to do', {
    details: { hint: 'margay run "what to do", or margay run - to read it from standard input' },
  });
}

async function sessionFor(context: CommandContext, options: RunOptions): Promise<Session> {
  const { client, profile } = await context.connect();
  const project = options.project ?? profile.project;
  if (options.session !== undefined) return client.session(await sessionIdOf(client, options.session, project));
  const binding: CreateOptions = {};
  if (options.cwd !== undefined) binding.cwd = resolve(context.terminal.folder, options.cwd);
  else if (project !== undefined) binding.project = project;
  if (options.mode ?? profile.mode) binding.mode = options.mode ?? profile.mode;
  if (options.model ?? profile.model) binding.model = options.model ?? profile.model;
  if (options.tag !== undefined) binding.tag = options.tag;
  return client.sessions.create(binding);
}

function detached(context: CommandContext, { id, session }: Run): number {
  context.print({ json: { session_id: session.id, run_id: id }, lines: [session.id] });
  context.remark(`the run goes on: margay tail ${session.id} --follow`);
  return EXIT.completed;
}

/** Streams a run to its end and answers its exit code. */
export async function watchRun(context: CommandContext, started: Run, timeLimitMs?: number): Promise<number> {
  const { session } = started;
  context.remark(`session ${session.id}`);
  const renderer = context.renderer();
  const open = (options: Parameters<Run['events']>[0]) => started.events(options);
  const end = await watch(context, { session, renderer, open, ownsRun: true, timeLimitMs });
  return end === 'ended' ? finished(context, started) : cutShort(context, end, session.id);
}

async function finished(context: CommandContext, started: Run): Promise<number> {
  const { status } = await started.result();
  const code = exitCodeOfStatus(status);
  if (code === EXIT.failed) context.remark(`try: margay run -s ${started.session.id} "continue"`);
  return code;
}

const SENTENCES: Record<Exclude<WatchEnd, 'ended'>, (id: string) => string> = {
  interrupted: (id) => `interrupted: margay run -s ${id} TEXT goes on from here`,
  detached: (id) => `detached, the run goes on: margay tail ${id} --follow, or margay stop ${id}`,
  timeLimit: (id) => `the time limit is over and the run was canceled: margay run -s ${id} "continue"`,
  waiting: (id) => `the run waits for a person: margay send ${id} TEXT, or margay stop ${id}`,
};
const EXIT_BY_END: Record<Exclude<WatchEnd, 'ended'>, number> = {
  interrupted: EXIT.interrupted,
  detached: EXIT.interrupted,
  timeLimit: EXIT.timeLimit,
  waiting: EXIT.waiting,
};

function cutShort(context: CommandContext, end: Exclude<WatchEnd, 'ended'>, sessionId: string): number {
  context.remark(SENTENCES[end](sessionId));
  return EXIT_BY_END[end];
}
