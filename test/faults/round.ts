import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { PlatformHarness } from '../e2e/harness';
import { Actor } from './actor';
import { check, type Findings } from './check';
import { SANDBOX, type Fault } from './plan';

export interface RoundOptions {
  faults: readonly Fault[];
  actors: number;
  /** After the last fault every run ends within this time. */
  settleMs: number;
  progress: (line: string) => void;
}

export interface RoundResult extends Findings {
  faults: number;
  /** From the death of a runner to the first stored word of the run's next owner, ascending, in milliseconds. */
  takeoversMs: number[];
}

interface Death {
  /** Milliseconds since the epoch. */
  at: number;
}

/** Plays faults against real processes that serve a few users, then checks what is left. */
export async function playRound(margay: PlatformHarness, options: RoundOptions): Promise<RoundResult> {
  const actors = Array.from({ length: options.actors }, (_, index) => new Actor(margay, index));
  for (const actor of actors) await actor.open();
  let isOver = false;
  const deadline = new AbortController();
  const playing = actors.map((actor) =>
    actor.play(() => isOver, deadline.signal).catch((error: unknown) => String(error)),
  );
  const deaths: Death[] = [];
  for (const fault of options.faults) {
    await delay(fault.pauseMs);
    options.progress(`${fault.kind} ${fault.target} for ${fault.durationMs} ms`);
    if (fault.kind === 'kill' && fault.target.startsWith('agent-runner')) deaths.push({ at: Date.now() });
    await strike(margay, fault);
  }
  isOver = true;
  const timer = setTimeout(() => deadline.abort(new Error('not settled')), options.settleMs);
  const problems = (await Promise.all(playing)).filter((problem) => typeof problem === 'string');
  clearTimeout(timer);
  const all = await Promise.all(
    actors.map(async (actor) => {
      const stored = await margay.storedFrames(actor.sessionId);
      return { findings: await check(actor, stored), takeovers: takeoversOf(stored, deaths) };
    }),
  );
  const sum = (key: 'runs' | 'unknown' | 'parked'): number =>
    all.reduce((total, { findings }) => total + findings[key], 0);
  return {
    violations: [...problems, ...all.flatMap(({ findings }) => findings.violations)],
    runs: sum('runs'),
    unknown: sum('unknown'),
    parked: sum('parked'),
    faults: options.faults.length,
    takeoversMs: all.flatMap(({ takeovers }) => takeovers).toSorted((a, b) => a - b),
  };
}

async function strike(margay: PlatformHarness, { kind, target, durationMs }: Fault): Promise<void> {
  if (target === SANDBOX) return killSandbox(margay.home);
  const process = margay.platform.get(target);
  if (kind === 'restart') return margay.platform.restart(target);
  await process.kill(kind === 'kill' ? 'SIGKILL' : 'SIGSTOP');
  await delay(durationMs);
  if (kind === 'stop') await process.kill('SIGCONT');
  else await margay.platform.restart(target);
}

/** The first process inside takes all others with it. */
async function killSandbox(home: string): Promise<void> {
  const folder = join(home, 'sandboxes');
  for (const name of await readdir(folder)) {
    const text = await readFile(join(folder, name, 'record.json'), 'utf8').catch(() => '{}');
    const { processes = [] } = JSON.parse(text) as { processes?: { pid: number; startedAt: string }[] };
    const inner = processes.at(-1);
    if (inner && (await startOf(inner.pid)) === inner.startedAt) return void process.kill(inner.pid, 'SIGKILL');
  }
}

/** Tells a process from a later one with its number. */
async function startOf(pid: number): Promise<string | undefined> {
  const text = await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => '');
  return text.slice(text.lastIndexOf(')') + 2).split(' ')[19];
}

/**
 * Call ids name the epoch that made them: where it changes within a run, another owner took over. Its first word is the
 * first event after the death of the one before.
 */
function takeoversOf(stored: readonly string[], deaths: readonly Death[]): number[] {
  const events = stored.map((text) => {
    const { type, ts, payload } = JSON.parse(text) as { type: string; ts: string; payload: { tool_call_id?: string } };
    return { type, at: Date.parse(ts), epoch: type === 'tool_call' ? payload.tool_call_id?.split('.')[1] : undefined };
  });
  const starts = events.flatMap(({ type }, index) => (type === 'user' ? [index] : []));
  return starts.flatMap((start, index) => {
    const run = events.slice(start, starts[index + 1]);
    const calls = run.filter(({ epoch }) => epoch !== undefined);
    return calls.flatMap((call, at) => {
      const before = calls[at - 1];
      if (!before || before.epoch === call.epoch) return [];
      const death = deaths.findLast((known) => known.at > before.at && known.at < call.at);
      const first = death && run.find((event) => event.at > death.at);
      return first ? [first.at - death.at] : [];
    });
  });
}
