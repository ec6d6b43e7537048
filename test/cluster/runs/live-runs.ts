import type { Installation } from '../installation';
import { describePods, tell } from '../phase';
import { faultsOf } from './faults-of';
import { nameOf, PORTS, type Followed, type Progress } from './script';

const LIVE_MS = 120_000;
const END_MS = 120_000;
const LIFE_MS = 1_500_000;

/** Runs of clients in a pod that go on until they are told to end. */
export class LiveRuns {
  private constructor(
    private readonly installation: Installation,
    private readonly batch: string,
    private readonly names: readonly string[],
    private readonly followed: Promise<string>,
  ) {}

  /** Resolves once each of them has had the result of a tool. @param batch lower-case letters */
  static async start(installation: Installation, batch: string, count: number): Promise<LiveRuns> {
    const runs = LiveRuns.begin(installation, batch, count);
    await runs.areLive();
    return runs;
  }

  static begin(installation: Installation, batch: string, count: number): LiveRuns {
    const { cluster, namespace } = installation;
    const program = ['/usr/bin/node', '/programs/follow-runs.cjs', 'http://margay-gateway', batch, String(count)];
    const followed = cluster.exec(namespace, 'client', program, { timeoutMs: LIFE_MS });
    followed.catch(() => undefined); // `end` sees it
    const names = Array.from({ length: count }, (_, index) => nameOf(batch, index));
    return new LiveRuns(installation, batch, names, followed);
  }

  async areLive(): Promise<void> {
    const areLive = () => Promise.race([this.steps(2, LIVE_MS), this.followed]);
    await this.installation.phase(`${this.names.length} live runs`, areLive);
  }

  /** Resolves once each run has made so many more steps than by now. */
  async goOn(steps = 1): Promise<void> {
    const before = await this.progress();
    const wanted = (name: string) => (before.calls[name] ?? 0) + steps;
    await this.until(LIVE_MS, ({ calls }) => this.names.filter((name) => (calls[name] ?? 0) < wanted(name)));
  }

  /** Steps of each run so far. */
  async stepsByRun(): Promise<number[]> {
    const { calls } = await this.progress();
    return this.names.map((name) => calls[name] ?? 0);
  }

  /** Tells them to end and waits until each client has seen that. @returns what is wrong with any of them */
  async end(): Promise<string[]> {
    await this.ask(`{ method: 'POST', body: ${JSON.stringify(JSON.stringify({ batch: this.batch }))} }`);
    const { cluster, namespace } = this.installation;
    const late = new Promise<never>((_, reject) => setTimeout(reject, END_MS, new Error('runs did not end in time')).unref()); // prettier-ignore
    const output = await this.installation.phase('the end of the runs', () => Promise.race([this.followed, late]));
    const lines = output.split('\n').filter((line) => line !== '');
    const all = lines.map((line) => JSON.parse(line) as Followed);
    const { notes } = await this.progress();
    const faults = all.flatMap((run) => faultsOf(run, notes));
    const missing = this.names.filter((name) => !all.some((run) => run.name === name));
    if (faults.length > 0) tell(await describePods(cluster, namespace));
    const events = all.reduce((sum, { stored }) => sum + stored.length, 0);
    tell(`${all.length} runs, ${events} events, ${all.reduce((sum, run) => sum + run.connections, 0)} connections`);
    return [...faults, ...missing.map((name) => `${name}: nothing is known of it`)];
  }

  private async steps(count: number, timeoutMs: number): Promise<void> {
    await this.until(timeoutMs, ({ calls }) => this.names.filter((name) => (calls[name] ?? 0) < count));
  }

  private async until(timeoutMs: number, missing: (progress: Progress) => string[]): Promise<void> {
    const attempt = async () => {
      const late = missing(await this.progress());
      if (late.length > 0) throw new Error(`${late.join(', ')} did not go on`);
    };
    await this.installation.cluster.until('a step of every run', attempt, timeoutMs);
  }

  private progress(): Promise<Progress> {
    return this.ask('{}');
  }

  private async ask(request: string): Promise<Progress> {
    const { cluster, namespace } = this.installation;
    const script = `fetch('http://127.0.0.1:${PORTS.control}/', ${request}).then((response) => response.text()).then(console.log)`; // prettier-ignore
    return JSON.parse(await cluster.evaluate(namespace, 'model', script)) as Progress;
  }
}
