import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { runInNewContext } from 'node:vm';
import { ToolFailure } from '../outcome';
import { killTree } from './process-tree';
import { RetainedText } from './retained-text';
import { spawnShell, type ShellLimits } from './spawn-shell';

export interface ShellSessionsOptions {
  environment: Readonly<Record<string, string>>;
  limits: ShellLimits;
  wrapper: readonly string[];
}

export interface ShellSessionView {
  shellId: string;
  command: string;
  status: 'running' | 'exited';
  exitCode: number | null;
}

export interface ShellReading extends ShellSessionView {
  output: string;
  /** Characters produced so far; the next reading starts here. */
  cursor: number;
  /** Characters between the asked cursor and what is still kept. */
  missedCharacters: number;
}

export interface ShellStart {
  callId: string;
  command: string;
  cwd: string;
  hasTerminal: boolean;
}

interface ShellSession {
  shellId: string;
  /** The call that started it. */
  callId: string;
  command: string;
  child: ChildProcess;
  pid: number;
  exitCode: number | null;
  hasExited: boolean;
  usedAt: number;
  text: RetainedText;
}

const MAX_SESSIONS = 32;
const IDLE_MS = 3_600_000;
const KILL_GRACE_MS = 3_000;
const FILTER_TIMEOUT_MS = 500;

/** Commands that outlive the call that started them (ext §1.8). They live as long as this process. */
export class ShellSessions {
  private readonly sessions = new Map<string, ShellSession>();

  constructor(
    private readonly options: ShellSessionsOptions,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Starts a command; returns its id at once. */
  async start({ callId, ...start }: ShellStart): Promise<string> {
    await this.makeRoom();
    const shellId = `sh_${randomBytes(4).toString('hex')}`;
    const started = await spawnShell({ ...start, marker: shellId, ...this.options, stdin: 'pipe' });
    if ('failure' in started) throw new ToolFailure(`The shell did not start: ${started.failure}`);
    const { child, pid } = started;
    const session: ShellSession = {
      shellId,
      callId,
      command: start.command,
      child,
      pid,
      exitCode: null,
      hasExited: false,
      usedAt: this.now(),
      text: new RetainedText(),
    };
    this.sessions.set(shellId, session);
    child.stdout?.on('data', (chunk: Buffer) => session.text.append(chunk));
    child.stdin?.on('error', () => session.text.wake());
    child.once('exit', (code) => {
      session.exitCode = code ?? -1;
      session.hasExited = true;
      session.text.wake();
    });
    return shellId;
  }

  /** Ids of the calls whose sessions are running. */
  get starters(): string[] {
    return [...this.sessions.values()].filter(({ hasExited }) => !hasExited).map(({ callId }) => callId);
  }

  list(): ShellSessionView[] {
    return [...this.sessions.values()].map(viewOf);
  }

  /** Output from `cursor` on (absent = everything kept); waits up to `waitMs` for more or for the end. */
  async read(
    shellId: string,
    options: { cursor?: number; filter?: string; waitMs: number; signal: AbortSignal },
  ): Promise<ShellReading> {
    const session = this.get(shellId);
    await session.text.waitBeyond(options.cursor ?? 0, {
      waitMs: session.hasExited ? 0 : options.waitMs,
      signal: options.signal,
      isOver: () => session.hasExited,
    });
    const slice = session.text.from(options.cursor ?? session.text.start);
    const output = options.filter === undefined ? slice.text : filterLines(slice.text, options.filter);
    return { ...viewOf(session), output, cursor: session.text.end, missedCharacters: slice.missed };
  }

  async write(shellId: string, input: string): Promise<void> {
    const session = this.get(shellId);
    const { stdin } = session.child;
    if (session.hasExited || !stdin?.writable)
      throw new ToolFailure(`Shell ${shellId} has exited; nothing was written.`);
    await new Promise<void>((resolve) => stdin.write(input, () => resolve()));
  }

  async kill(shellId: string): Promise<ShellSessionView> {
    const session = this.get(shellId);
    await killTree({ pid: session.pid, marker: shellId }, KILL_GRACE_MS);
    return { ...viewOf(session), status: 'exited' };
  }

  /** Ends and forgets those that calls started which are meant; by default all. */
  async killAll(graceMs: number, isMeant: (callId: string) => boolean = () => true): Promise<void> {
    const meant = [...this.sessions.values()].filter(({ callId }) => isMeant(callId));
    const running = meant.filter(({ hasExited }) => !hasExited);
    const trees = running.map(({ pid, shellId }) => killTree({ pid, marker: shellId }, graceMs));
    // One that has ended may have left something behind, and its number may be somebody else's by now.
    const exited = new Set(meant.filter(({ hasExited }) => hasExited).map(({ shellId }) => shellId));
    if (exited.size > 0) trees.push(killTree({ marker: (mark) => exited.has(mark) }, graceMs));
    await Promise.all(trees);
    for (const { shellId } of meant) this.sessions.delete(shellId);
  }

  private get(shellId: string): ShellSession {
    const session = this.sessions.get(shellId);
    if (!session) throw new ToolFailure(`No shell ${shellId}; operation "list" names those there are.`);
    session.usedAt = this.now();
    return session;
  }

  /** Idle sessions go; then the longest unused exited one, if there are too many. */
  private async makeRoom(): Promise<void> {
    const byAge = [...this.sessions.values()].sort((a, b) => a.usedAt - b.usedAt);
    for (const session of byAge) {
      if (this.now() - session.usedAt < IDLE_MS) break;
      if (!session.hasExited) await killTree({ pid: session.pid, marker: session.shellId }, KILL_GRACE_MS);
      this.sessions.delete(session.shellId);
    }
    if (this.sessions.size < MAX_SESSIONS) return;
    const oldest = byAge.find((session) => session.hasExited && this.sessions.has(session.shellId));
    if (!oldest) throw new ToolFailure(`${MAX_SESSIONS} background shells are running; kill one first.`);
    this.sessions.delete(oldest.shellId);
  }
}

function viewOf(session: ShellSession): ShellSessionView {
  const { shellId, command, hasExited, exitCode } = session;
  return { shellId, command, status: hasExited ? 'exited' : 'running', exitCode };
}

/** A pattern from a model may backtrack for ever; the virtual machine's time-out ends that too. */
function filterLines(text: string, pattern: string): string {
  try {
    const code = 'const re = new RegExp(pattern); text.split("\\n").filter((line) => re.test(line)).join("\\n")';
    return String(runInNewContext(code, { text, pattern }, { timeout: FILTER_TIMEOUT_MS }));
  } catch (error) {
    throw new ToolFailure(`filter is not a usable regular expression: ${(error as Error).message}`, { cause: error });
  }
}
