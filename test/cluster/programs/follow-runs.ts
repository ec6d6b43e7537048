// Clients in a pod: `follow-runs.cjs URL BATCH COUNT` starts so many runs, follows each stream to its end over any number of
// connections, and prints a line per run.
import { MargayClient, type MargayEvent } from '@margay/client';
import { nameOf, type Followed } from '../runs/script';

const [baseUrl = '', batch = '', count = '0'] = process.argv.slice(2);
const client = new MargayClient({ baseUrl, apiKey: process.env.MARGAY_API_KEY ?? '', maxAttempts: 10 });

async function follow(name: string): Promise<Followed> {
  const session = await client.sessions.create();
  await session.query(`Go on as ${name} until you are told to end.`);
  const streamed: string[] = [];
  let connections = 0;
  const onConnection = ({ state }: { state: string }): void => void (connections += state === 'open' ? 1 : 0);
  for await (const item of session.stream({ onConnection }))
    if (item.type !== 'session_state' && item.seq !== undefined) streamed.push(JSON.stringify(item));
  const stored = (await allEvents(session.id)).map((event) => JSON.stringify(event));
  const { ok } = await client.request<{ ok: boolean }>('GET', `/api/sessions/${session.id}/verify`);
  return { name, sessionId: session.id, streamed, stored, connections, verified: ok };
}

/** Page by page, from the newest back. */
async function allEvents(sessionId: string): Promise<MargayEvent[]> {
  const events: MargayEvent[] = [];
  for (;;) {
    const before = events[0] && { before: events[0].ts };
    const page = (await client.session(sessionId).events({ limit: 500, ...before })).events;
    if (page.length === 0) return events;
    events.unshift(...page);
  }
}

async function main(): Promise<void> {
  const names = Array.from({ length: Number(count) }, (_, index) => nameOf(batch, index));
  await Promise.all(names.map(async (name) => console.log(JSON.stringify(await follow(name)))));
}

void main();
