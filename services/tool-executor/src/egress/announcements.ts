import { subjects } from '@margay/contracts';
import { NatsBus, type Logger } from '@margay/platform';

/** Tells the egress proxy of sandboxes that end: whom it knew as one of them is asked for again. */
export interface Announcements {
  ended(sandboxId: string): void;
  close(): Promise<void>;
}

/** Without NATS nothing is told, and the proxy forgets by itself within a minute. */
export async function openAnnouncements(url: string | undefined, logger: Logger): Promise<Announcements> {
  if (url === undefined) return { ended: () => undefined, close: async () => undefined };
  const bus = new NatsBus({ url, name: 'tool-executor', logger });
  await bus.start();
  return {
    ended: (sandboxId) => bus.publish(subjects.config('sandbox'), sandboxId),
    close: () => bus.close(),
  };
}
