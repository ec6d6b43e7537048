import { MargayClient } from '@margay/client';
import { fault, ok, reasonOf, warning, type Finding } from './finding';

/** Longer than the minute after which proxies like to close what seems idle. */
const WATCH_MS = 70_000;
/** The gateway writes at least every 15 s; whoever holds that back longer buffers. */
const SILENT_MS = 20_000;

export interface StreamCheckOptions {
  /** Where clients reach the gateway. */
  url: string;
  /** Absent: nothing can be looked at. */
  apiKey: string | undefined;
  /** How long the stream is watched (default 70 s), and how long it may say nothing (20 s). */
  watchMs?: number;
  silentMs?: number;
}

/** Opens a stream the way clients do, through every proxy on their way, and watches whether all of it comes at once. */
export async function checkStream({
  url,
  apiKey,
  watchMs = WATCH_MS,
  silentMs = SILENT_MS,
}: StreamCheckOptions): Promise<Finding[]> {
  if (apiKey === undefined) {
    const fix = 'put an API key into MARGAY_CHECK_KEY or the file of MARGAY_CHECK_KEY_FILE';
    return [warning('public.stream', 'without a key no stream can be opened', fix)];
  }
  const client = new MargayClient({ baseUrl: url, apiKey, surface: 'system:doctor' });
  try {
    const session = await client.sessions.create();
    try {
      const address = new URL(`/api/stream?sessions=${session.id}`, url);
      return await watch(address, { apiKey, watchMs, silentMs });
    } finally {
      await session.terminate();
    }
  } catch (error) {
    const fix = 'look at DNS, the certificate and the rules of what stands before the gateway, and at the key';
    return [fault('public.reached', `no stream could be opened at ${url}: ${reasonOf(error)}`, fix)];
  }
}

interface Watching {
  apiKey: string;
  watchMs: number;
  silentMs: number;
}

async function watch(address: URL, { apiKey, watchMs, silentMs }: Watching): Promise<Finding[]> {
  const over = new AbortController();
  let silent = setTimeout(() => over.abort('silent'), silentMs);
  const end = setTimeout(() => over.abort('enough'), watchMs);
  const startedAt = performance.now();
  const seconds = (): number => Math.round((performance.now() - startedAt) / 1_000);
  try {
    const headers = { authorization: `Bearer ${apiKey}`, accept: 'text/event-stream', 'accept-encoding': 'gzip' };
    const response = await fetch(address, { headers, signal: over.signal });
    if (!response.ok || response.body === null)
      return [fault('public.stream', `the stream answered ${response.status}`, 'look at the log of the gateway and of the proxies')]; // prettier-ignore
    for await (const chunk of response.body) {
      if ((chunk as Uint8Array).byteLength === 0) continue;
      clearTimeout(silent);
      silent = setTimeout(() => over.abort('silent'), silentMs);
    }
    return [fault('public.stream', `the stream was closed after ${seconds()} s`, LONGER)];
  } catch (error) {
    if (over.signal.reason === 'enough')
      return [ok('public.stream', `a stream stays open and comes unbuffered for ${seconds()} s`)];
    if (over.signal.reason === 'silent')
      return [fault('public.stream', `nothing came for ${Math.round(silentMs / 1_000)} s, although the gateway writes every 15 s`, UNBUFFERED)]; // prettier-ignore
    return [fault('public.stream', `the stream broke after ${seconds()} s: ${reasonOf(error)}`, LONGER)];
  } finally {
    clearTimeout(silent);
    clearTimeout(end);
    over.abort('over');
  }
}

const LONGER =
  'let proxies keep idle responses for more than a minute (nginx: proxy_read_timeout; ingress-nginx: the annotation proxy-read-timeout; load balancers: idle timeout)';
const UNBUFFERED =
  'switch off buffering and compression of text/event-stream in what stands before the gateway (nginx: proxy_buffering off, gzip off; ingress-nginx: the annotation proxy-buffering)';
