import { setTimeout as delay } from 'node:timers/promises';
import { Actor } from '../../faults/actor';
import { check, type Findings } from '../../faults/check';
import { StoreReader } from '../../faults/store-reader';
import type { StoredCommit } from '../../faults/stored';
import { takeoversOf, type Takeover } from '../../faults/takeovers';
import type { CrashWorld } from './crash-world';

const RUN_MS = 180_000;
const POLL_MS = 100;
/** Users of one row beyond the first have numbers so far apart. */
const APART = 100;

export interface Seen extends Findings {
  takeovers: Takeover[];
}

/** Where one row is played: its users, and what they can do and see. */
export class Stage {
  readonly actors: Actor[] = [];
  readonly deadline = AbortSignal.timeout(RUN_MS);
  private readonly done = new Set<string>();

  constructor(
    readonly world: CrashWorld,
    private readonly row: number,
  ) {}

  get margay() {
    return this.world.margay;
  }

  /** The first user, of most rows the only one. */
  get actor(): Actor {
    return this.actors[0] as Actor;
  }

  /** Name of the first run. */
  get run(): string {
    return `run-${this.row}-0`;
  }

  /** One more user with a session of their own. */
  async enter(): Promise<Actor> {
    const actor = new Actor(this.margay, this.row + APART * this.actors.length);
    await actor.open();
    this.actors.push(actor);
    return actor;
  }

  /** One run from its query to the end of its stream. */
  playOne(actor = this.actor): Promise<void> {
    return actor.play(() => true, this.deadline);
  }

  /** True once. */
  isFirst(what: string): boolean {
    if (this.done.has(what)) return false;
    this.done.add(what);
    return true;
  }

  /** A request of the first user, beside what they play. */
  request(method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
    return this.margay.request(method, `/api/sessions/${this.actor.sessionId}${path}`, body, headers);
  }

  async until(holds: () => Promise<boolean> | boolean): Promise<void> {
    while (!(await holds())) await delay(POLL_MS, undefined, { signal: this.deadline });
  }

  commitsOf(actor: Actor): Promise<StoredCommit[]> {
    return this.reading((reader) => reader.commitsOf(actor.sessionId));
  }

  /** Types of the stored events of the first user, in order. */
  async types(): Promise<string[]> {
    return (await this.frames()).map((text) => (JSON.parse(text) as { type: string }).type);
  }

  async frames(): Promise<string[]> {
    return (await this.commitsOf(this.actor)).flatMap((commit) => commit.frames);
  }

  /** Rows of the queue that show a run as not ended. */
  openRows(): Promise<{ _id: string; state: string }[]> {
    return this.reading((reader) => reader.openRows(this.actors.map(({ sessionId }) => sessionId)));
  }

  /** What the checker says of each user. */
  check(): Promise<Seen[]> {
    return this.reading((reader) =>
      Promise.all(
        this.actors.map(async (actor) => {
          const commits = await reader.commitsOf(actor.sessionId);
          const findings = await check(actor, commits, await this.margay.storedFrames(actor.sessionId));
          return { ...findings, takeovers: takeoversOf(commits, { strikes: [], noticedAt: new Map() }) };
        }),
      ),
    );
  }

  private async reading<T>(read: (reader: StoreReader) => Promise<T>): Promise<T> {
    const reader = new StoreReader(this.margay.storeUrl, this.margay.database);
    try {
      return await read(reader);
    } finally {
      await reader.close();
    }
  }
}
