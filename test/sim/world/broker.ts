import type { Head, StoredFrame } from '@margay/log';
import type { SimProcess } from './sim-process';
import type { World } from './world';

export type LiveMessage =
  /** One per commit; a large one names the commit only. */
  | { kind: 'commit'; sessionId: string; c: number; frames: StoredFrame[] | undefined; head: Head }
  /** Text of a running step. `ts` is the clock of whoever published it. */
  | { kind: 'delta'; sessionId: string; runId: string; step: number; c: number; ts: number }
  | { kind: 'dispatch' };

type Subject = LiveMessage['kind'];

interface Subscription {
  process: SimProcess;
  subjects: readonly Subject[];
  /** Undefined = every one. */
  sessionId: string | undefined;
  life: number;
  onMessage: (message: LiveMessage) => void;
}

/** Fan-out without memory: messages are lost, late, out of order or doubled. */
export class Broker {
  isUp = true;
  private readonly subscriptions = new Set<Subscription>();

  constructor(private readonly world: World) {}

  /** @returns ends the subscription; the death of the process ends it too */
  subscribe(
    process: SimProcess,
    to: { subjects: readonly Subject[]; sessionId?: string },
    onMessage: (message: LiveMessage) => void,
  ): () => void {
    const { subjects, sessionId } = to;
    const subscription: Subscription = { process, subjects, sessionId, life: process.life, onMessage };
    this.subscriptions.add(subscription);
    const end = (): void => void this.subscriptions.delete(subscription);
    const forget = process.onDeath(end);
    return () => {
      forget();
      end();
    };
  }

  publish(message: LiveMessage): void {
    if (!this.isUp) return;
    const { random, areFaultsOn } = this.world;
    const about = 'sessionId' in message ? message.sessionId : undefined;
    for (const subscription of this.subscriptions) {
      const { subjects, sessionId } = subscription;
      if (!subjects.includes(message.kind) || (sessionId ?? about) !== about) continue;
      if (areFaultsOn && random.chance(0.05)) continue;
      this.deliver(subscription, message);
      if (areFaultsOn && random.chance(0.02)) this.deliver(subscription, message);
    }
  }

  private deliver(subscription: Subscription, message: LiveMessage): void {
    const { random, areFaultsOn, time } = this.world;
    const isLate = areFaultsOn && random.chance(0.05);
    const delayMs = random.between(0.1, 1) + (isLate ? random.between(1, 250) : 0);
    const { process, life, onMessage } = subscription;
    time.at(delayMs, () =>
      process.enter(life, () => {
        if (this.subscriptions.has(subscription)) onMessage(message);
      }),
    );
  }
}
