import { UnavailableError } from '@margay/errors';
import type { Progress } from '../progress';

/** One place a server may come from. */
export interface Source<T> {
  name: string;
  /** Undefined: it is not to be had here. A throw: it should have worked, and why it did not. */
  find(): Promise<T | undefined>;
}

/** Asks the sources in order; the first answer wins, failures are told and kept for the final error. */
export async function firstOf<T>(
  what: string,
  sources: readonly Source<T>[],
  progress: Progress,
  advice: string,
): Promise<T> {
  const failures: string[] = [];
  for (const source of sources) {
    try {
      const found = await source.find();
      if (found !== undefined) return found;
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      failures.push(`${source.name}: ${reason}`);
      progress(`${what} from ${source.name}: ${reason}`);
    }
  }
  const tried =
    failures.length > 0 ? failures.join('; ') : `nothing found in ${sources.map((source) => source.name).join(', ')}`;
  throw new UnavailableError('server_unavailable', `no ${what}: ${tried}. ${advice}`);
}
