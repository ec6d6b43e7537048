import { GatewayHarness } from '../spec/gateway-harness';

interface Page {
  events: { ts: string; seq: number }[];
  running: boolean;
}

describe('pages of events', () => {
  const harness = new GatewayHarness();
  let id: string;
  let all: Page['events'];

  beforeAll(async () => {
    await harness.start();
    id = await harness.session.createSession();
    await harness.session.accept(id, 'hi');
    await harness.session.claim(id);
    for (let n = 0; n < 40; n += 1) {
      const notes = Array.from({ length: n % 4 }, () => ({ type: 'run_note' as const, payload: { text: `${n}` } }));
      await harness.session.step(id, ...notes);
    }
    all = (await page({})).events;
  });
  afterAll(() => harness.stop());

  const page = async (query: Record<string, string>): Promise<Page> => {
    const answer = await harness.get(`/api/sessions/${id}/events?${new URLSearchParams(query).toString()}`);
    expect(answer.status).toBe(200);
    return answer.body as Page;
  };

  it('go backwards from the end, each keyed by the first event of the one before, without loss or repetition', async () => {
    const pages: Page['events'][] = [];
    for (let before: string | undefined = ''; before !== undefined; before = pages[0]?.[0]?.ts) {
      const { events, running } = await page({ limit: '7', ...(before === '' ? {} : { before }) });
      expect(running).toBe(true);
      if (events.length === 0) break;
      pages.unshift(events);
    }
    expect(pages.flat()).toEqual(all);
    expect(pages.slice(1).every((events) => events.length === 7)).toBe(true);
  });

  it('go forwards behind a time', async () => {
    const after = all[4]?.ts ?? '';
    expect((await page({ after, limit: '3' })).events).toEqual(all.slice(5, 8));
  });

  it('end before a time, which is left out, and begin behind another', async () => {
    const [after = '', before = ''] = [all[2]?.ts, all[20]?.ts];
    expect((await page({ before })).events).toEqual(all.slice(0, 20));
    expect((await page({ after, before })).events).toEqual(all.slice(3, 20));
    expect((await page({ after, before, limit: '2' })).events).toEqual(all.slice(18, 20));
    expect((await page({ before: '0' })).events).toEqual([]);
  });

  it.each([
    ['limit', '0'],
    ['limit', '1001'],
    ['limit', 'ten'],
    ['before', 'yesterday'],
  ])('are refused for %s=%s, naming it', async (name, value) => {
    const answer = await harness.get(`/api/sessions/${id}/events?${name}=${value}`);
    expect(answer.status).toBe(400);
    expect((answer.body as { message: string }).message).toContain(`'${name}'`);
  });
});
