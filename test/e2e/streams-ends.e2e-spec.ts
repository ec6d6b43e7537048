import { setTimeout as sleep } from 'node:timers/promises';
import type { Session } from '@margay/client';
import { answer, byConversation, callTools } from '@margay/testing';
import { PlatformHarness } from './harness';
import { isLong } from './streams/long-tests';
import { seeded } from './streams/seeded';
import { StreamClient } from './streams/stream-client';

const ROUNDS = isLong ? 20 : 1;
jest.setTimeout(ROUNDS * 60_000 + 180_000);

const margay = new PlatformHarness({ mode: 'combined', runners: 1 });

beforeAll(() => margay.start(), 600_000);
afterAll(() => margay.stop());

const SHELL = { name: 'aider_shell_tool', arguments: { command: 'sleep 30' } };

/** What becomes of a run, by the text it is asked. */
const script = byConversation(({ results }, { messages }) => {
  const asked = JSON.stringify(messages);
  if (asked.includes('refused')) return { status: 401, error: 'no such key' };
  if (asked.includes('hangs')) return { hang: true };
  if (asked.includes('works') && results.length === 0) return callTools(SHELL);
  if (asked.includes('reads') && results.length < 2)
    return callTools({ name: 'read_file', arguments: { path: `missing${results.length}` } });
  return answer('done', { chunks: 'characters' });
});

const cancel = (session: Session) => session.cancel();
const terminate = (session: Session) => session.terminate();
const OUTCOMES: [string, ((session: Session) => Promise<unknown>) | undefined][] = [
  ['answers at once', undefined],
  ['reads what is not there', undefined],
  ['is refused by the model before its first step', undefined],
  ['hangs in its first call and is cancelled', cancel],
  ['hangs in its first call and is terminated', terminate],
  ['works in a shell and is cancelled', cancel],
  ['works in a shell and is terminated', terminate],
  ['answers while it is cancelled', cancel],
];

it('pain 13: every stream ends in exactly one terminal event, whatever becomes of the run, and soon', async () => {
  margay.script(script);
  const random = seeded(13);
  const delaysMs: number[] = [];
  const one = async (text: string, end: ((session: Session) => Promise<unknown>) | undefined) => {
    const session = await margay.sessionWith({});
    const streams: Promise<StreamClient>[] = [];
    const open = () => {
      const url = `${margay.platform.gatewayUrl}/api/sessions/${session.id}/stream`;
      const headers = { 'x-api-key': margay.platform.apiKey };
      streams.push(StreamClient.open({ url, headers }));
    };
    await session.query(text);
    const watching = (async () => {
      for (let n = 0; n < 6; n += 1) {
        open();
        await sleep(random() * 400);
      }
    })();
    if (end) await sleep(random() * 1_500);
    await end?.(session);
    await watching;
    const clients = await Promise.all(streams);
    await Promise.all(clients.map(({ done }) => done));
    for (const client of clients) {
      const types = [...client.text.matchAll(/^data: .*?"type":"(\w+)"/gm)].map(([, type]) => type);
      expect([text, client.ended, types.filter((type) => type === 'stream_end').length]).toEqual([text, 'clean', 1]);
      expect(types.slice(-2)).toEqual(['session_state', 'stream_end']);
      const state = JSON.parse(client.text.split('\n\n').at(-3)?.slice('data: '.length) ?? '') as { running: boolean };
      expect(state.running).toBe(false);
      expect(types.filter((type) => type === 'completion')).toHaveLength(1);
      const cause = /^data: \{"ts":"([^"]+)","type":"completion"/m.exec(client.text)?.[1] ?? '';
      const openedMs = performance.timeOrigin + client.openedAtMs;
      const endedMs = performance.timeOrigin + client.endedAtMs;
      delaysMs.push(endedMs - Math.max(openedMs, Date.parse(cause)));
    }
  };
  for (let round = 0; round < ROUNDS; round += 1) await Promise.all(OUTCOMES.map(([text, end]) => one(text, end)));
  expect(delaysMs).toHaveLength(ROUNDS * OUTCOMES.length * 6);
  process.stderr.write(`last event to end of stream at most ${Math.round(Math.max(...delaysMs))} ms (aim 5000)\n`);
});
