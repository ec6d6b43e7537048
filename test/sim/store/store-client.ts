import { CommitStore, type CommitDocument } from '@margay/log';
import { rebuiltBytes } from './rebuilt-bytes';
import type { SimProcess } from '../world/sim-process';
import type { RunnerRow, RunRow, SessionRow, SimStore, StoredEntry, ToolCallRow } from './sim-store';

/** How long a client waits for an answer; after that the outcome is unknown. */
const TIMEOUT_MS = 700;
const PAGE = 16;

interface Tables {
  sessions: SessionRow;
  runs: RunRow;
  runners: RunnerRow;
  toolCalls: ToolCallRow;
}

/** The store as one process reaches it: requests and answers may be late or lost. */
export class StoreClient extends CommitStore {
  private readonly store: SimStore;
  private readonly sent = new WeakSet<CommitDocument>();

  constructor(private readonly process: SimProcess) {
    super();
    this.store = process.world.store;
  }

  insert(document: CommitDocument): Promise<'inserted' | 'exists'> {
    const { world } = this.process;
    const isRetry = this.sent.has(document);
    if (isRetry) world.count('insert retried');
    this.sent.add(document);
    const bytes = isRetry && !world.has('sameBytes') ? rebuiltBytes(document, this.store) : document;
    return this.call((reply) => this.store.insert(bytes, reply), world.isStress ? 0.02 : 0.006);
  }

  findByCommitId(
    sessionId: string,
    commitId: string,
    options: { linearizable?: boolean } = {},
  ): Promise<CommitDocument | undefined> {
    return options.linearizable
      ? this.call((reply) => this.store.linearizableByCommitId(sessionId, commitId, reply))
      : this.call((reply) => reply(this.store.plainByCommitId(sessionId, commitId)));
  }

  readNumber(
    sessionId: string,
    c: number,
    options: { linearizable?: boolean } = {},
  ): Promise<CommitDocument | undefined> {
    const find = (): StoredEntry | undefined => this.store.entryOf(sessionId, c);
    return options.linearizable
      ? this.call((reply) => this.store.linearizable(find, reply))
      : this.call((reply) => reply(this.store.plain(find())));
  }

  async *range(sessionId: string, from: number, to = Infinity): AsyncIterable<CommitDocument> {
    for (let next = Math.max(1, from); next <= to; next += PAGE) {
      const last = Math.min(to, next + PAGE - 1);
      const page = await this.call<CommitDocument[]>((reply) => reply(this.page(sessionId, next, last)));
      yield* page;
      if (page.length < PAGE) return;
    }
  }

  findNumberByTs(sessionId: string, ts: number): Promise<number> {
    return this.call((reply) => {
      let found = 0;
      for (const document of this.page(sessionId, 1, Infinity)) if (document.ts0 <= ts) found = document.c;
      reply(found > 0 && !this.process.world.has('cursorFromCommitBefore') ? found + 1 : found);
    });
  }

  lowerBound(sessionId: string): Promise<number> {
    return this.call((reply) => reply(this.store.sessions.get(sessionId)?.c ?? 0));
  }

  rows<T extends keyof Tables>(table: T): Promise<[string, Tables[T]][]> {
    return this.call((reply) => reply([...this.table(table)]));
  }

  row<T extends keyof Tables>(table: T, id: string): Promise<Tables[T] | undefined> {
    return this.call((reply) => reply(this.table(table).get(id)));
  }

  updateRow<T extends keyof Tables>(
    table: T,
    id: string,
    change: (row: Tables[T] | undefined) => Tables[T] | undefined,
  ): Promise<Tables[T]> {
    return this.call((reply) => this.store.updateRow(this.table(table), id, change, reply));
  }

  /** Ids of commits whose effects were due before this time. */
  overdue(beforeMs: number): Promise<string[]> {
    return this.call((reply) =>
      reply([...this.store.due].filter(([, dueAtMs]) => dueAtMs <= beforeMs).map(([id]) => id)),
    );
  }

  clearDue(id: string): Promise<void> {
    return this.call((reply) => this.store.clearDue(id, () => reply(undefined)));
  }

  /** Repeats a call until the store answers. */
  async persist<T>(call: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await call();
      } catch {
        await this.process.sleep(this.process.world.random.between(5, 60));
      }
    }
  }

  private table<T extends keyof Tables>(name: T): Map<string, Tables[T]> {
    return this.store[name] as unknown as Map<string, Tables[T]>;
  }

  private page(sessionId: string, from: number, to: number): CommitDocument[] {
    const found: CommitDocument[] = [];
    for (let c = from; c <= to; c++) {
      const document = this.store.plain(this.store.entryOf(sessionId, c));
      if (!document) break;
      found.push(document);
    }
    return found;
  }

  private call<T>(arrive: (reply: (value: T) => void) => void, stumble = 0): Promise<T> {
    const { process, store } = this;
    const { world, life } = process;
    return new Promise<T>((resolve, reject) => {
      let isSettled = false;
      const settle = (then: () => void): void =>
        process.enter(life, () => {
          if (isSettled) return;
          isSettled = true;
          timeout?.cancel();
          then();
        });
      let timeout: ReturnType<typeof world.time.at> | undefined;
      const unknown = (): void => settle(() => reject(new Error('the store did not answer')));
      const send = (): void => {
        timeout = world.time.at(TIMEOUT_MS, unknown);
        world.carry(() => {
          if (!store.isUp) return world.carry(unknown);
          arrive((value) => world.carry(() => settle(() => resolve(value))));
        });
      };
      process.stumble(stumble, send);
    });
  }
}
