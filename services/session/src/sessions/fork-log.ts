import { AbortedError, UnavailableError } from '@margay/errors';
import { ForkWriter, type CommitDocument, type CommitStore, type ForkPlan, type LogClock } from '@margay/log';
import type { Logger } from '@margay/platform';

const ATTEMPTS = 8;
const RETRY_FIRST_MS = 20;

export interface ForkLogPorts {
  store: CommitStore;
  logger: Logger;
  clock: Pick<LogClock, 'nowMicros'>;
}

/**
 * Writes the log of a fork commit by commit, whatever is there already: the same plan gives the same commits.
 * @returns its last commit, as it is stored
 * @throws AbortedError `fork_conflict` where something else lies there; UnavailableError where the store does not answer
 */
export async function writeForkLog(
  ports: ForkLogPorts,
  plan: ForkPlan,
  command: { commitId: string; bodyHash: string },
): Promise<CommitDocument> {
  const writer = new ForkWriter(plan);
  for await (const document of sourceOf(ports.store, plan)) {
    const ready = writer.add(document);
    if (ready) await store(ports, ready);
  }
  const rest = writer.flush();
  if (rest) await store(ports, rest);
  return store(ports, writer.close(ports.clock.nowMicros(), command));
}

/** Its end was seen by a linearizable read, so all of it is stored: a range that stops short is read on. */
async function* sourceOf(store: CommitStore, { source }: ForkPlan): AsyncIterable<CommitDocument> {
  let nextC = 1;
  for (let attempt = 0; nextC <= source.c; attempt++) {
    if (attempt === ATTEMPTS)
      throw new UnavailableError('log_gap', `commit ${nextC} of session ${source.sessionId} could not be read`);
    if (attempt > 0) await pause(attempt);
    for await (const document of store.range(source.sessionId, nextC, source.c)) {
      nextC = document.c + 1;
      attempt = 0;
      yield document;
    }
  }
}

/** The same bytes until they are stored. @returns what lies there: of the last commit the time may be another's */
async function store(ports: ForkLogPorts, document: CommitDocument): Promise<CommitDocument> {
  for (let attempt = 1; ; attempt++) {
    try {
      if ((await ports.store.insert(document)) === 'inserted') return document;
      const occupant = await ports.store.readNumber(document.sessionId, document.c, { linearizable: true });
      if (occupant && isSame(occupant, document)) return occupant;
      if (occupant) break;
    } catch (error) {
      if (attempt === ATTEMPTS) throw error;
      ports.logger.debug({ err: error, sessionId: document.sessionId }, 'a commit of a fork is sent again');
    }
    if (attempt === ATTEMPTS) break;
    await pause(attempt);
  }
  throw new AbortedError('fork_conflict', `something else is stored as session ${document.sessionId}; fork again`);
}

function isSame(occupant: CommitDocument, document: CommitDocument): boolean {
  const isLast = document.effects.length > 0;
  return isLast ? String(occupant.commitIds) === String(document.commitIds) : occupant.hash === document.hash;
}

function pause(attempt: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, RETRY_FIRST_MS * 2 ** attempt));
}
