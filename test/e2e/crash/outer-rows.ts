import { count, edit, read } from '../../faults/script';
import type { CrashRow } from './crash-row';

/** 30,000 as the protocol has it; shorter in every test run. */
const STORE_DOWN_MS = Number(process.env['MARGAY_STORE_DOWN_MS'] ?? 2_500);

export const OUTER_ROWS: CrashRow[] = [
  {
    name: 'sandbox or sandboxd lost meanwhile: pure and keyed calls again, an unkeyed one is unknown',
    faults: (run) => [
      `sandboxd.before-result=kill?aider_shell_tool?${run}`,
      'sandboxd.before-run=kill?read_file',
      `sandboxd.before-run=kill?aider_edit_block_tool?${run.replace('run-', 'run-2')}`,
      `sandboxd.before-result=kill?aider_edit_block_tool?${run.replace('run-', 'run-3')}`,
    ],
    // One kind of call per user: each has a sandbox, which is lost once.
    steps: (run) => {
      const user = Math.floor(Number(/run-(\d+)/.exec(run)?.[1]) / 100);
      return [[[count(run, 0, 0)], [read('count.txt')], [edit(run, 1)], [edit(run, 1)]][user] ?? []];
    },
    play: async (stage) => {
      for (let users = 1; users < 4; users += 1) await stage.enter();
      await Promise.all(stage.actors.map((actor) => stage.playOne(actor)));
    },
    unknown: 1,
    takeovers: 0,
  },
  {
    name: 'tool-executor dies during Execute: the call goes on, the next life attaches to it',
    faults: (run) => [`executor.during-execute=kill?${run}-0`],
    steps: (run) => [[count(run, 0, 2)]],
    takeovers: 0,
  },
  {
    name: 'tool-executor dies before it passes the result on: it comes from the journal',
    faults: (run) => [`executor.after-execute=kill?${run}-0`],
    takeovers: 0,
  },
  {
    name: 'broker down: dispatch by the poll, streams by the probe',
    play: async (stage) => {
      const { servers } = stage.world;
      await servers.killBroker();
      try {
        await stage.playOne();
      } finally {
        await servers.startBroker();
      }
    },
    takeovers: 0,
  },
  {
    name: 'store down: the same commits are retried, nobody counts as lost',
    steps: (run) => [[count(run, 0, 1)], [edit(run, 1)]],
    play: async (stage) => {
      const playing = stage.playOne();
      await stage.until(async () => (await stage.types()).includes('tool_call'));
      await stage.world.servers.killStore(STORE_DOWN_MS);
      await playing;
    },
    takeovers: 0,
  },
];
