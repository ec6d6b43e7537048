import { QueueReminders } from './queue-reminders';
import type { RunRow } from './run.repository';

let places: Map<string, number>;
let sessionC: number;
let published: { subject: string; message: unknown }[];
let askedBeforeMs: number;
let reminders: QueueReminders;

beforeEach(() => {
  places = new Map([['s:r1', 4]]);
  sessionC = 3;
  published = [];
  reminders = new QueueReminders({
    runs: {
      waitingSince: async (_, beforeMs) => {
        askedBeforeMs = beforeMs;
        return [{ _id: 's:r1', sessionId: 's', tenantId: 't', c: 3 } as RunRow];
      },
    },
    sessions: { states: async () => [{ _id: 's', c: sessionC, stateJson: '{"running":true,"status":"running"}' }] },
    positions: { ofRuns: async () => places },
    bus: { publish: (subject, text) => published.push({ subject, message: JSON.parse(String(text)) }) },
    pools: ['p'],
    now: () => 100_000,
  });
});

describe('a run that has waited for 30 s', () => {
  it('tells where it stands as the state of the last commit, without events', async () => {
    expect(await reminders.remind()).toBe(1);
    const state = '{"running":true,"status":"running","queue_position":4}';
    expect(published).toEqual([{ subject: 'margay.t.session.s.event', message: { c: 3, state, restated: true } }]);
    expect(askedBeforeMs).toBe(70_000);
  });

  it('tells it again only when it has changed', async () => {
    await reminders.remind();
    expect(await reminders.remind()).toBe(0);
    places = new Map([['s:r1', 3]]);
    expect(await reminders.remind()).toBe(1);
  });

  it('tells nothing before its session shows the commit that queued it, nor once it is given away', async () => {
    sessionC = 2;
    expect(await reminders.remind()).toBe(0);
    sessionC = 3;
    places = new Map();
    expect(await reminders.remind()).toBe(0);
    expect(published).toEqual([]);
  });
});
