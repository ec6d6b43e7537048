// A client in a pod that asks the gateway again and again, as one without retries would: `ask.cjs URL SECONDS`. It ends
// early where /tmp/stop is there. Prints how often it got which answer.
import { existsSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

const PATHS = ['/healthz', '/api/sessions?limit=1'];
const [url = '', seconds = '0'] = process.argv.slice(2);
const headers = { 'X-API-KEY': process.env.MARGAY_API_KEY ?? '' };

async function ask(path: string): Promise<string> {
  try {
    const response = await fetch(url + path, { headers, signal: AbortSignal.timeout(10_000) });
    const text = await response.text();
    return response.ok ? 'ok' : `${path} ${response.status}: ${text.slice(0, 200)}`;
  } catch (error) {
    const { name, cause } = error as { name: string; cause?: { code?: string } };
    return `${path} ${cause?.code ?? name}`;
  }
}

async function main(): Promise<void> {
  const counts: Record<string, number> = {};
  const until = performance.now() + Number(seconds) * 1_000;
  while (performance.now() < until && !existsSync('/tmp/stop')) {
    for (const path of PATHS) {
      const answer = await ask(path);
      counts[answer] = (counts[answer] ?? 0) + 1;
    }
    await delay(100);
  }
  console.log(JSON.stringify(counts));
}

void main();
