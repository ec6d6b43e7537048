import type { sessionsPb } from '@margay/contracts';
import { UnavailableError } from '@margay/errors';
import type { CallOptions } from '@margay/platform';
import type { Backends } from '../backends';

export type ReadFrom = NonNullable<sessionsPb.ReadCommitsRequest['from']>;

/** The stored log of one session, read on behalf of somebody. */
export interface CommitReader {
  /** Commits in order; the last message carries the state of the head that bounded the whole replay. */
  read(from: ReadFrom, signal: AbortSignal): AsyncIterable<sessionsPb.ReadCommitsResponse>;
  /** State of the log's confirmed end. */
  state(signal: AbortSignal): Promise<sessionsPb.SessionState>;
}

/** No page of the range. */
const WHOLE = { beforeTs: 0, last: 0, first: 0 };
const STATE_TIMEOUT_MS = 5_000;

export function commitReader({ sessions }: Backends, sessionId: string, call: CallOptions): CommitReader {
  return {
    read: (from, signal) => sessions.readCommits({ sessionId, from, ...WHOLE }, { ...call, signal }),
    async state(signal) {
      const { state } = await sessions.getState({ sessionId }, { ...call, signal, timeoutMs: STATE_TIMEOUT_MS });
      if (!state) throw new UnavailableError('unavailable', `session ${sessionId} was answered without its state`);
      return state;
    },
  };
}
