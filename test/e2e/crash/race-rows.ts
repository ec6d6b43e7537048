import { edit } from '../../faults/script';
import type { CrashRow } from './crash-row';
import type { Stage } from './stage';

export const RACE_ROWS: CrashRow[] = [
  {
    name: 'session process paused between decide and insert: position taken, it decides again',
    faults: (run) => [`session.before-insert=pause:1500?${run}-0?"type":"tool_call"`],
    play: async (stage) => {
      const playing = stage.playOne();
      await stage.world.struck('session.before-insert', 'session');
      const steered = await twice((n) => stage.request('POST', '/message', { text: `thought ${n} on ${stage.run}` }));
      expect(steered.map(({ status }) => status)).toEqual([202, 202]);
      await playing;
      const types = await stage.types();
      expect(types.indexOf('user_steer')).toBeLessThan(types.indexOf('tool_call'));
    },
    takeovers: 0,
  },
  {
    name: 'cancel races finish, cancel first: the final commit is refused',
    faults: (run) => [`session.before-insert=pause:1500?done ${run}`],
    play: async (stage) => {
      const playing = stage.playOne();
      await stage.world.struck('session.before-insert', 'session');
      expect(await twice(() => cancel(stage))).toContain(true);
      await playing;
      expect((await stage.frames()).filter((text) => text.includes(`done ${stage.run}`))).toEqual([]);
    },
    isMeant: /ended .*canceled/,
    takeovers: 0,
  },
  {
    name: 'cancel races finish, finish first: "no active run"',
    faults: (run) => [`session.after-insert=pause:700?done ${run}`],
    play: async (stage) => {
      const playing = stage.playOne();
      await stage.world.struck('session.after-insert', 'session');
      expect(await twice(() => cancel(stage))).toEqual([false, false]);
      await playing;
    },
    takeovers: 0,
  },
  {
    name: 'question answered twice: the first commit wins, the other gets 409',
    steps: (run) => [[QUESTION], [edit(run, 1)]],
    play: async (stage) => {
      const query = { query: `please do ${stage.run}` };
      const asking = await stage.request('POST', '/query', query, { 'x-margay-capabilities': 'ask_user' });
      expect(asking.status).toBe(202);
      const playing = stage.actor.recordOne(stage.deadline);
      await stage.until(async () => (await stage.types()).includes('user_question'));
      const { call_id, call_token } = await askedIn(stage);
      const answered = await twice((n) =>
        stage.request('POST', `/questions/${call_id}/answer`, { call_token, answers: [{ selected_indexes: [n] }] }),
      );
      expect(answered.map(({ status }) => status).sort()).toEqual([200, 409]);
      await playing;
      expect((await stage.types()).filter((type) => type === 'user_question_answered')).toHaveLength(1);
    },
    takeovers: 0,
  },
];

const QUESTION = {
  name: 'ask_user_question',
  arguments: {
    questions: [{ header: 'Colour', question: 'Which one?', options: [{ label: 'red' }, { label: 'blue' }] }],
  },
};

/** Two at the same time: calls are spread over the replicas, so one comes to each. */
const twice = <T>(call: (n: number) => Promise<T>): Promise<T[]> => Promise.all([call(0), call(1)]);

function cancel({ margay, actor }: Stage): Promise<boolean> {
  return margay.client.session(actor.sessionId).cancel();
}

async function askedIn(stage: Stage): Promise<{ call_id: string; call_token: string }> {
  const asked = (await stage.frames()).find((text) => text.includes('"type":"user_question"')) ?? '';
  return (JSON.parse(asked) as { payload: { call_id: string; call_token: string } }).payload;
}
