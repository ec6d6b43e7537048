import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { MargayClient } from '@margay/client';
import { InvalidArgumentError, isMargayError, UnavailableError } from '@margay/errors';

const USAGE = `Usage: margay.cjs check --url URL
The key is that of MARGAY_CHECK_KEY or MARGAY_CHECK_KEY_FILE; without one only health is checked.`;
const HEALTH_TIMEOUT_MS = 10_000;
/** A network policy lets a new pod through only a while after that has started. */
const REACH_MS = 45_000;
const PAUSE_MS = 500;

export interface CheckOptions {
  url: string;
  apiKey?: string;
  write: (line: string) => void;
  /** How long it tries to reach the gateway at all; default 45 s. */
  reachMs?: number;
}

/** @throws InvalidArgumentError `usage` */
export function parseCheck(argv: readonly string[]): string {
  try {
    const { url } = parseArgs({ args: [...argv], options: { url: { type: 'string' } } }).values;
    if (url !== undefined && URL.canParse(url)) return url;
  } catch {
    // The usage says it better.
  }
  throw new InvalidArgumentError('usage', USAGE);
}

/** Whether an installation works, as a client sees it: it is healthy, and a session can be made and ended. */
export async function check({ url, apiKey, write, reachMs = REACH_MS }: CheckOptions): Promise<void> {
  await checkHealth(url, performance.now() + reachMs);
  write('the gateway is healthy');
  if (apiKey === undefined) return write('no key: no session was made');
  const client = new MargayClient({ baseUrl: url, apiKey, surface: 'system:check' });
  const session = await client.sessions.create().catch((error: unknown) => {
    if (isMargayError(error) && error.code === 'UNAUTHENTICATED') return undefined;
    throw error;
  });
  // The first key of an installation holds for a day: later tests of it must not fail for that.
  if (session === undefined) return write('the key holds no longer: no session was made');
  write(`session ${session.id} made`);
  await session.terminate();
  write(`session ${session.id} ended`);
}

async function checkHealth(url: string, until: number): Promise<void> {
  const address = new URL('/healthz', url);
  const answer = await fetch(address, { signal: AbortSignal.timeout(HEALTH_TIMEOUT_MS) }).catch((cause: unknown) => {
    if (performance.now() > until) throw unhealthy(`was not reached at ${address.href}`, cause);
  });
  if (answer?.ok) return;
  if (answer) throw unhealthy(`answered ${answer.status} at ${address.href}`);
  await delay(PAUSE_MS);
  await checkHealth(url, until);
}

function unhealthy(what: string, cause?: unknown): Error {
  return new UnavailableError('gateway_unhealthy', `The gateway ${what}; look at its pods and their logs.`, { cause });
}
