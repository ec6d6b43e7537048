import { InvalidArgumentError } from '@margay/errors';
import { systemClock, type Clock } from './clock';

export interface ClientOptions {
  /** Where the gateway is; a path prefix is kept. Default: the page's origin; required outside browsers. */
  baseUrl?: string;
  /** The key, or a function asked before every request and once more after a 401. Sent as `X-API-KEY`. */
  apiKey: string | (() => string | Promise<string>);
  /** Tenant to act in, for keys that may act in several. */
  tenant?: string;
  /** Names the calling program; default `api`. */
  surface?: string;
  /** What this program renders and answers, e.g. `approvals`; default none. */
  capabilities?: readonly string[];
  /** Bound of one call with all its attempts; default 30 000. Streams have none. */
  timeoutMs?: number;
  /** Attempts of a call that is safe to repeat; default 3. */
  maxAttempts?: number;
  fetch?: typeof globalThis.fetch;
  /** Sent with every request. */
  headers?: Readonly<Record<string, string>>;
  /** Timers and chance; only tests set it. */
  clock?: Clock;
}

export interface RequestOptions {
  /** Its abort rejects with `CancelledError`, reason `aborted`. A run that was accepted goes on. */
  signal?: AbortSignal;
  timeoutMs?: number;
  /** Repeating a call with its key repeats nothing; default: a new ULID per create, query and message. */
  idempotencyKey?: string;
  headers?: Readonly<Record<string, string>>;
}

export interface Settings {
  baseUrl: string;
  apiKey: () => string | Promise<string>;
  /** Whether asking for the key again may give another one. */
  keyRenews: boolean;
  headers: Record<string, string>;
  timeoutMs: number;
  maxAttempts: number;
  fetch: typeof globalThis.fetch;
  clock: Clock;
}

/** Checks the options; `INVALID_ARGUMENT` names the faulty one. */
export function settingsOf(options: ClientOptions): Settings {
  const { apiKey, timeoutMs = 30_000, maxAttempts = 3 } = options;
  if (!apiKey) throw new InvalidArgumentError('bad_options', 'apiKey is missing: give a key or a function of one');
  if (!(timeoutMs > 0)) throw new InvalidArgumentError('bad_options', 'timeoutMs must be greater than 0');
  if (!(maxAttempts >= 1)) throw new InvalidArgumentError('bad_options', 'maxAttempts must be 1 or more');
  return {
    baseUrl: baseUrlOf(options.baseUrl),
    apiKey: typeof apiKey === 'function' ? apiKey : () => apiKey,
    keyRenews: typeof apiKey === 'function',
    headers: commonHeaders(options),
    timeoutMs,
    maxAttempts,
    fetch: options.fetch ?? ((input, init) => globalThis.fetch(input, init)),
    clock: options.clock ?? systemClock,
  };
}

function baseUrlOf(given: string | undefined): string {
  const text = given ?? (globalThis as { location?: { origin?: string } }).location?.origin;
  if (!text) throw new InvalidArgumentError('bad_options', 'baseUrl is missing: give the address of the gateway');
  if (!/^https?:\/\/[^/\s]+/.test(text))
    throw new InvalidArgumentError('bad_options', `baseUrl "${text}" is no http(s) address`);
  return text.replace(/\/+$/, '');
}

function commonHeaders({ tenant, surface = 'api', capabilities = [], headers }: ClientOptions): Record<string, string> {
  return {
    Accept: 'application/json',
    'X-Margay-Surface': surface,
    ...(tenant === undefined ? {} : { 'X-Margay-Tenant': tenant }),
    ...(capabilities.length ? { 'X-Margay-Capabilities': capabilities.join(', ') } : {}),
    ...headers,
  };
}
