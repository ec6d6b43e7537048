import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { count, countUntil } from '../../faults/script';
import type { CrashRow } from './crash-row';

const TOOL_CALL = '"type":"tool_call"';
const TOOL_RESULT = '"type":"tool_result"';

export const SESSION_ROWS: CrashRow[] = [
  {
    name: 'session replica dies between insert and answer: the runner gets the stored answer elsewhere',
    faults: (run) => [`session.after-insert=kill?${run}-0?${TOOL_CALL}`],
    takeovers: 0,
  },
  {
    name: 'session replica dies between answer and publish: readers find the commit by their probe',
    faults: (run) => [`session.before-publish=pause:600000?${run}-0?${TOOL_CALL}`],
    steps: (run) => [[count(run, 0, 3)]],
    play: async (stage) => {
      const playing = stage.playOne();
      const replica = await stage.world.struck('session.before-publish', 'session');
      await stage.world.margay.platform.get(replica).kill('SIGKILL');
      await playing;
    },
    takeovers: 0,
  },
  {
    name: 'commit not published: readers find it by the gap before the next message',
    faults: (run) => [`session.before-publish=throw?${run}-0?${TOOL_CALL}`],
    takeovers: 0,
  },
  {
    name: 'session replica dies before the effects are applied: a janitor applies them',
    faults: (run) => [`session.before-effects=kill?done ${run}`],
    play: async (stage) => {
      await stage.playOne();
      await stage.until(async () => (await stage.openRows()).length === 0);
    },
    takeovers: 0,
  },
  {
    name: 'accept: replica dies after commit, before 202: repeated with its Idempotency-Key → 202',
    faults: (run) => [`session.before-accepted=kill?${run}`],
    takeovers: 0,
  },
  {
    name: 'accept: gateway dies after commit, before 202: repeated with its Idempotency-Key → 202',
    faults: (run) => [`gateway.before-accepted=kill?${run}`],
    takeovers: 0,
  },
  {
    name: 'accept: after commit, before 202, repeated without a key → 409, and the run is visible',
    faults: (run) => [`gateway.before-accepted=kill?${run}`],
    // However long the gateway takes to come back, the run is still at work.
    steps: (run) => [[countUntil(run, 0, 'go')]],
    play: async (stage) => {
      const query = { query: `please do ${stage.run} without a key` };
      expect(await stage.request('POST', '/query', query).catch(() => 'lost')).toBe('lost');
      await stage.world.revived('gateway');
      expect((await stage.request('POST', '/query', query)).status).toBe(409);
      expect((await stage.request('GET', '/events')).body).toMatchObject({ running: true });
      await writeFile(join(stage.actor.folder, 'go'), '');
      await stage.actor.recordOne(stage.deadline);
    },
    takeovers: 0,
  },
  {
    name: 'claim stored, Assign lost: missing from two beats, taken over',
    // No other row has a second run.
    faults: () => ['session.before-assign=throw?:r2'],
    play: async (stage) => {
      await stage.playOne();
      await stage.playOne();
    },
    takeovers: 1,
  },
  {
    name: 'insert without an answer, landed or not: same bytes until the store has them',
    faults: (run) => [
      `session.before-insert=throw?${run}-0?${TOOL_CALL}`,
      `session.after-insert=throw?${run}-0?${TOOL_RESULT}`,
    ],
    takeovers: 0,
  },
];
