import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { OwnServers } from '../../faults/own-servers';
import { PlatformHarness } from '../harness';

const POLL_MS = 25;
const PATIENCE_MS = 120_000;
const SANDBOXD = 'sandboxd';
const STRIKES = 'a fault point strikes';
/** Quicker than in production. A lease is longer than the time after which a silent runner gets no runs, 8 s. */
const PACE: NodeJS.ProcessEnv = {
  MARGAY_HEARTBEAT_SECONDS: '1',
  MARGAY_RUN_UNLISTED_SECONDS: '2',
  MARGAY_RUNNER_LOST_SECONDS: '9',
};

export interface Death {
  process: string;
  /** Milliseconds since the epoch. */
  at: number;
}

/**
 * A platform in many processes that are armed with the faults of all rows to come. Whichever dies is started again, armed
 * with what is left.
 */
export class CrashWorld {
  readonly margay: PlatformHarness;
  /** Of this row. */
  deaths: Death[] = [];
  servers!: OwnServers;
  private plan: readonly string[];
  /** Processes that are meant to be down. */
  private readonly down = new Set<string>();
  private readonly reviving = new Map<string, Promise<void>>();
  private watching?: NodeJS.Timeout;
  private failure: unknown;
  /** Length of each log when this row began. */
  private marks = new Map<string, number>();

  constructor(plan: readonly string[]) {
    this.plan = plan;
    this.margay = new PlatformHarness({
      mode: 'split',
      replicas: { session: 2, 'agent-runner': 2 },
      env: { ...PACE, MARGAY_FAULT_POINTS: plan.join(';') },
      copiesBundles: true,
      servers: async (directory) => (this.servers = await OwnServers.open(directory)),
    });
  }

  /** One runner only: who goes on with a run is its next life, unless a second one is started. */
  async start(): Promise<void> {
    await this.margay.start();
    await this.stopProcess('agent-runner-2');
    this.watching = setInterval(() => this.revive(), POLL_MS);
  }

  async stop(): Promise<void> {
    clearInterval(this.watching);
    await Promise.allSettled(this.reviving.values());
    await this.margay.stop();
  }

  /** @param plan what processes are armed with from their next start on */
  async beginRow(plan: readonly string[]): Promise<void> {
    await this.whole();
    this.plan = plan;
    this.deaths = [];
    const logs = await this.logs();
    this.marks = new Map(logs.map(({ file, text }) => [file, text.length]));
  }

  async startProcess(name: string): Promise<void> {
    await this.margay.platform.restart(name, this.life());
    this.down.delete(name);
  }

  async stopProcess(name: string): Promise<void> {
    this.down.add(name);
    await this.margay.platform.get(name).stop();
  }

  /** Resolves once this process has died and is up again. */
  async revived(name: string): Promise<void> {
    while (!this.deaths.some(({ process }) => process === name)) await delay(POLL_MS);
    await this.whole();
  }

  /** All that died are up again. */
  async whole(): Promise<void> {
    while (this.deaths.length < (await this.kills())) await delay(POLL_MS);
    while (this.reviving.size > 0) await Promise.all(this.reviving.values());
    if (this.failure) throw new Error('a process did not come up again', { cause: this.failure });
  }

  /** Resolves with the process in which a fault of this row has struck at this point. */
  async struck(point: string, process = ''): Promise<string> {
    return this.said([STRIKES, `"point":"${point}"`], process);
  }

  /** Resolves with the process that has written a line with these texts. */
  async said(texts: readonly string[], process = ''): Promise<string> {
    const untilMs = performance.now() + PATIENCE_MS;
    for (;;) {
      const found = (await this.linesWith(texts)).find((line) => line.process.startsWith(process));
      if (found) return found.process;
      if (performance.now() > untilMs) throw new Error(`no process said ${texts.join(' … ')}`);
      await delay(POLL_MS);
    }
  }

  /** How often faults have struck at a point. */
  async strikes(point: string): Promise<number> {
    return (await this.linesWith([STRIKES, `"point":"${point}"`])).length;
  }

  /** Processes that a fault has killed in this row. */
  private async kills(): Promise<number> {
    const struck = await this.linesWith([STRIKES, '"action":"kill"']);
    return struck.filter(({ process }) => process !== SANDBOXD).length;
  }

  private life() {
    return { env: { MARGAY_FAULT_POINTS: this.plan.join(';') } };
  }

  private revive(): void {
    for (const { name, pid } of this.margay.platform.processes) {
      if (pid !== undefined || this.down.has(name) || this.reviving.has(name)) continue;
      this.deaths.push({ process: name, at: Date.now() });
      const restarted = this.margay.platform
        .restart(name, this.life())
        .catch((error: unknown) => void (this.failure ??= error))
        .finally(() => this.reviving.delete(name));
      this.reviving.set(name, restarted);
    }
  }

  private async linesWith(texts: readonly string[]): Promise<{ process: string; line: string }[]> {
    return (await this.logs()).flatMap(({ process, file, text }) => {
      const lines = text.slice(this.marks.get(file) ?? 0).split('\n');
      return lines.filter((line) => texts.every((part) => line.includes(part))).map((line) => ({ process, line }));
    });
  }

  private async logs(): Promise<{ process: string; file: string; text: string }[]> {
    const { home } = this.margay;
    const logs = (await readdir(join(home, 'logs'))).map((file) => ({
      process: file.replace(/\.log$/, ''),
      file: join(home, 'logs', file),
    }));
    const sandboxes = await readdir(join(home, 'sandboxes')).catch(() => []);
    const daemons = sandboxes.map((name) => ({
      process: SANDBOXD,
      file: join(home, 'sandboxes', name, 'sandboxd.log'),
    }));
    const readLog = async (log: { process: string; file: string }) => ({
      ...log,
      text: await readFile(log.file, 'utf8').catch(() => ''),
    });
    return Promise.all([...logs, ...daemons].map(readLog));
  }
}
