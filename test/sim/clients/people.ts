import { runRequest } from '@margay/testing';
import type { RunRequest } from '@margay/log';
import type { World } from '../world/world';
import type { Clients } from './clients';

const LOOK_EVERY_MS = 500;
const LATE_MAX_MS = 9_000;

/** What a client asks for that can show questions to a person. */
export function question(text: string): RunRequest {
  const plain = runRequest(text);
  return { ...plain, options: { ...plain.options, capabilities: ['ask_user'] } };
}

/** People who watch a session: they answer what runs ask, sometimes two of them at once, too late, or not at all. */
export class People {
  private readonly seen = new Set<string>();
  private readonly ignored = new Set<string>();

  constructor(
    private readonly world: World,
    private readonly clients: Clients,
    private readonly sessionId: string,
  ) {}

  async watch(): Promise<void> {
    for (;;) {
      await this.clients.sleep(LOOK_EVERY_MS);
      const open = this.world.store.headOf(this.sessionId)?.questions ?? [];
      for (const { callId, expiresTs } of open) this.see(callId, expiresTs !== null);
    }
  }

  private see(callId: string, isLimited: boolean): void {
    const { random, areFaultsOn } = this.world;
    if (this.seen.has(callId)) {
      // Once all is calm somebody has a look at what was left and does not end by itself.
      if (!areFaultsOn && !isLimited && this.ignored.delete(callId)) this.answer(callId, 0);
      return;
    }
    this.seen.add(callId);
    if (random.chance(0.25)) return void this.ignored.add(callId);
    this.answer(callId, random.between(0, LATE_MAX_MS));
    if (random.chance(0.3)) this.answer(callId, random.between(0, LATE_MAX_MS));
  }

  private answer(callId: string, delayMs: number): void {
    const { world, clients, sessionId } = this;
    clients.play(async () => {
      await clients.sleep(delayMs);
      const commitId = world.nextId('answer');
      const late = question(`late ${commitId}`);
      const text = `the answer is ${commitId}`;
      await clients.insist(sessionId, { kind: 'answer', commitId, callId, answers: [{ text }], notes: null, via: 'rest', text, late }); // prettier-ignore
    });
  }
}
