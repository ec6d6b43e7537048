import { Expectations } from '../clients/expectations';
import { Plans } from '../runner/plans';
import { Prompts } from '../runner/prompts';
import type { Rule } from '../rules';
import { EffectsLedger } from '../sandbox/effects-ledger';
import { Sandbox } from '../sandbox/sandbox';
import { SimStore } from '../store/sim-store';
import { Broker } from './broker';
import { History } from './history';
import { Random } from './random';
import { VirtualTime } from './virtual-time';

export interface WorldOptions {
  seed: number;
  /** Rules that do not hold in this world. */
  off: ReadonlySet<Rule>;
  isStress: boolean;
  /** Called with each line of the trace. */
  onTrace?: (line: string) => void;
}

export interface Violation {
  kind: string;
  detail: string;
  atMs: number;
}

const TENANTS = ['acme', 'umbrella'];

/** What all actors share: time, chance, the network's moods, the store, the broker, and the record of all that happens. */
export class World {
  readonly time = new VirtualTime();
  readonly random: Random;
  readonly history = new History();
  readonly store: SimStore;
  readonly broker: Broker;
  readonly plans: Plans;
  readonly prompts: Prompts;
  readonly effects: EffectsLedger;
  readonly expectations: Expectations;
  readonly violations: Violation[] = [];
  readonly counts = new Map<string, number>();
  readonly sessionIds: readonly string[];
  readonly isStress: boolean;
  areFaultsOn = true;
  private readonly sandboxes: ReadonlyMap<string, Sandbox>;
  /** Largest skew of wall clocks in this world. */
  private readonly skewMs: number;
  private ids = 0;

  constructor(private readonly options: WorldOptions) {
    this.random = new Random(options.seed);
    this.isStress = options.isStress;
    this.skewMs = this.random.pick([0, 20, 20, 1_000, 3_000, 25_000]);
    this.sessionIds = ['5e551011', '5e551012', '5e551013'].slice(0, this.random.pick([1, 1, 2, 3]));
    this.store = new SimStore(this);
    this.broker = new Broker(this);
    this.plans = new Plans(this);
    this.prompts = new Prompts(this);
    this.effects = new EffectsLedger(this);
    this.expectations = new Expectations(this);
    this.sandboxes = new Map(this.sessionIds.map((id) => [id, new Sandbox(this, id)]));
  }

  has(rule: Rule): boolean {
    return !this.options.off.has(rule);
  }

  get off(): ReadonlySet<Rule> {
    return this.options.off;
  }

  get isTraced(): boolean {
    return this.options.onTrace !== undefined;
  }

  tenantOf(sessionId: string): string {
    return TENANTS[this.sessionIds.indexOf(sessionId) % TENANTS.length] as string;
  }

  sandboxOf(sessionId: string): Sandbox {
    const sandbox = this.sandboxes.get(sessionId);
    if (!sandbox) throw new Error(`no sandbox for ${sessionId}`);
    return sandbox;
  }

  drawSkewMs(): number {
    return this.random.between(-this.skewMs, this.skewMs);
  }

  nextId(prefix: string): string {
    return `${prefix}${this.ids++}`;
  }

  /** One way over the network: soon, late, or never. */
  carry(arrive: () => void): void {
    const { random, time } = this;
    if (this.areFaultsOn) {
      if (random.chance(this.isStress ? 0.012 : 0.004)) return;
      if (random.chance(0.006)) return void time.at(random.between(50, 4_000), arrive);
    }
    time.at(random.between(0.1, 0.6), arrive);
  }

  count(what: string, by = 1): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + by);
  }

  fail(kind: string, detail: string): void {
    this.trace('VIOLATION', `${kind}: ${detail}`);
    if (this.violations.length < 50) this.violations.push({ kind, detail, atMs: this.time.nowMs });
  }

  trace(who: string, what: string): void {
    this.options.onTrace?.(`${this.time.nowMs.toFixed(2).padStart(10)} ${who.padEnd(9)} ${what}`);
  }
}
