import {
  CommitLoop,
  readTip,
  type Command,
  type CommitDocument,
  type CommitOutcome,
  type Head,
  type StoredFrame,
} from '@margay/log';
import { Dispatcher } from './dispatcher';
import { EffectsWorker } from './effects-worker';
import { JournalServer } from './journal-server';
import { loopRules } from '../rules';
import { ProcessClock, SimProcess } from '../world/sim-process';
import { StoreClient } from '../store/store-client';

/** Above this, the live message of a commit names it only (small, so that it happens here). */
const LIVE_MAX_CHARS = 3_000;

/** A replica of the session service around the real commit loop. */
export class Replica extends SimProcess {
  store!: StoreClient;
  loop!: CommitLoop;
  dispatcher!: Dispatcher;
  effects!: EffectsWorker;
  journals!: JournalServer;

  boot(): void {
    this.store = new StoreClient(this);
    const effects = (this.effects = new EffectsWorker(this));
    this.journals = new JournalServer(this);
    this.loop = new CommitLoop({
      store: this.store,
      clock: new ProcessClock(this),
      rules: loopRules(this.world.off),
      onCommitted: (document) => {
        this.publish(document);
        this.journals.onHead(document.head, document.commitIds);
        this.spawn(() => effects.apply(document));
      },
    });
    this.dispatcher = new Dispatcher(this);
    effects.start();
    this.dispatcher.start();
    this.journals.start();
  }

  /** Gives a command to the commit loop and records what comes of it. */
  async submit(sessionId: string, command: Command, timeoutMs?: number): Promise<CommitOutcome | { failed: string }> {
    const { world } = this;
    const submission = world.history.sent(sessionId, command, this.name, world.time.nowMs);
    const options = timeoutMs === undefined ? {} : { timeoutMs };
    const outcome = await this.loop
      .submit(sessionId, command, options)
      .catch((error: Error & { reason?: string }) => ({ failed: error.reason ?? String(error.stack) }));
    submission.answeredAtMs = world.time.nowMs;
    submission.outcome = outcome;
    world.trace(this.name, `${command.kind} ${command.commitId} -> ${describe(outcome)}`);
    return outcome;
  }

  /** Kills itself after answering what is under way, as on SIGTERM. */
  shutDown(): void {
    this.world.trace(this.name, 'shuts down');
    this.loop.close();
    this.after(200, () => this.kill());
  }

  /** The newest head that plain reads show. */
  async readHead(sessionId: string): Promise<Head> {
    return (await this.store.persist(() => readTip(this.store, sessionId))).head;
  }

  private publish(document: CommitDocument): void {
    const { c, events, head, sessionId } = document;
    const { world } = this;
    world.trace(this.name, `stored ${sessionId} ${c} ${document.commitIds.join(' ')}`);
    const isLarge = events.reduce((sum, { frame }) => sum + frame.length, 0) > LIVE_MAX_CHARS;
    const frames = world.has('servedAsStored') ? events : events.map(madeAnew);
    world.broker.publish({ kind: 'commit', sessionId, c, frames: isLarge ? undefined : frames, head });
  }
}

export function describe(outcome: CommitOutcome | { failed: string }): string {
  if ('failed' in outcome) return `failed ${outcome.failed}`;
  return outcome.ok ? `stored at ${outcome.c}` : `refused ${outcome.rejection.reason} at ${outcome.head.c}`;
}

/** The same event serialised another time, by somebody who orders its fields as they please. */
function madeAnew({ frame, ...where }: StoredFrame): StoredFrame {
  const { ts, ...event } = JSON.parse(frame) as { ts: string };
  return { ...where, frame: JSON.stringify({ ...event, ts }) };
}
