import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { shareTaken } from './workspace-space';

export interface LimitWatchOptions {
  root: string;
  /** What the workspace may take; 0 = anything. */
  workspaceBytes: number;
  /** Processes of the container; 0 = any number. */
  processes: number;
  /** Whether the workspace may grow. */
  isBusy: () => boolean;
  /** Ends what goes on; with a weight, the heaviest call alone. */
  end: (limitHit: 'processes' | 'disk', weigh?: (pids: readonly number[]) => Promise<number>) => Promise<void>;
  measure?: (root: string, maxBytes: number) => Promise<number>;
  count?: () => Promise<number>;
  /** Sees to it that processes which have ended are reaped. */
  reap?: () => Promise<void>;
}

const COUNT_EVERY_MS = 1_000;
/** Measuring a workspace takes time; it gets a tenth of it at most. */
const MEASURE_EVERY_MS = 2_000;
const REST = 10;
const NOTED = 0.9;
const FULL = 0.95;

/** What no limit of the kernel ends before the kubelet takes the whole pod: too many processes, a workspace too large. */
export class LimitWatch {
  private timer?: NodeJS.Timeout;
  private looking: Promise<void> = Promise.resolve();
  private nextMeasureMs = 0;
  private share = 0;
  private measured = false;

  constructor(private readonly options: LimitWatchOptions) {}

  /** Nothing more is written until something is removed. */
  get isFull(): boolean {
    return this.share >= FULL;
  }

  /** How full the workspace is; undefined while nobody has measured. */
  get percent(): number | undefined {
    return this.measured ? Math.min(100, Math.round(this.share * 100)) : undefined;
  }

  /** What to tell whoever runs a command; undefined while there is room. */
  get note(): string | undefined {
    if (this.share < NOTED) return undefined;
    const percent = Math.min(100, Math.round(this.share * 100));
    return `The workspace is ${percent} % full. Remove what is not needed; at 95 % files can no longer be written.`;
  }

  start(): void {
    this.timer = setInterval(() => (this.looking = this.look()), COUNT_EVERY_MS);
    this.timer.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.timer);
    await this.looking;
  }

  /** One look. What cannot be read is looked at again. */
  async look(nowMs = performance.now()): Promise<void> {
    const { processes, isBusy } = this.options;
    if (processes > 0 && (await this.areTooMany())) await this.options.end('processes');
    const isChanging = isBusy() || this.share >= NOTED;
    if (this.options.workspaceBytes > 0 && isChanging && nowMs >= this.nextMeasureMs) await this.measure(nowMs);
  }

  private async areTooMany(): Promise<boolean> {
    const { processes, count = countProcesses, reap = wakeInit } = this.options;
    if ((await count()) <= processes) return false;
    await reap();
    return (await count()) > processes;
  }

  private async measure(nowMs: number): Promise<void> {
    const { root, workspaceBytes, measure = shareTaken } = this.options;
    this.nextMeasureMs = Infinity;
    const startedAt = performance.now();
    const wasFull = this.isFull;
    this.share = await measure(root, workspaceBytes).catch(() => this.share);
    this.measured = true;
    this.nextMeasureMs = nowMs + Math.max(MEASURE_EVERY_MS, (performance.now() - startedAt) * REST);
    // Those that remove files may go on.
    if (this.isFull && !wasFull) await this.options.end('disk', bytesWritten);
  }
}

const INIT = 1;
const REAPED_MS = 100;

/** A command may have stopped the container's first process, as a debugger can: then the dead are never reaped. */
async function wakeInit(): Promise<void> {
  if (process.pid !== INIT && process.getuid?.() !== 0) process.kill(INIT, 'SIGCONT');
  await delay(REAPED_MS);
}

async function countProcesses(): Promise<number> {
  return (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).length;
}

async function bytesWritten(pids: readonly number[]): Promise<number> {
  const texts = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/io`, 'latin1').catch(() => '')));
  return texts.reduce((sum, text) => sum + Number(/^wchar: (\d+)$/m.exec(text)?.[1] ?? 0), 0);
}
