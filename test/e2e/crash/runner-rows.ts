import { count, edit } from '../../faults/script';
import type { CrashRow } from './crash-row';
import type { Stage } from './stage';

/** Long enough for a takeover. */
const LONG_SECONDS = 3;

export const RUNNER_ROWS: CrashRow[] = [
  {
    name: 'runner dies in the model stream: the call repeats, one answer is stored',
    faults: (run) => [`runner.during-model-stream=kill?done ${run}`],
    takeovers: 1,
  },
  {
    name: 'after the answer, before A: the call repeats, its tools run once',
    faults: (run) => [`runner.before-commit-a=kill?${run}`],
    takeovers: 1,
  },
  {
    name: 'A stored, calls not sent: they run for the first time',
    faults: (run) => [`runner.after-commit-a=kill?${run}`],
    takeovers: 1,
  },
  {
    name: 'call running: the next owner attaches to it',
    faults: (run) => [`runner.during-call=kill?${run}-0`],
    steps: (run) => [[count(run, 0, LONG_SECONDS)]],
    takeovers: 1,
  },
  {
    name: 'result in the sandbox, B not stored: it comes from the journal there',
    faults: (run) => [`runner.before-commit-b=kill?${run}`],
    takeovers: 1,
  },
  {
    name: 'B stored, next call not started: the next owner starts it',
    faults: (run) => [`runner.after-commit-b=kill?${run}-0`],
    steps: (run) => [[count(run, 0, 0)], [edit(run, 1)]],
    takeovers: 1,
  },
  {
    name: 'final commit not sent: the next owner ends the run',
    faults: (run) => [`runner.before-final-commit=kill?${run}`],
    takeovers: 1,
  },
  {
    name: 'final commit stored: the run has ended, whatever becomes of its runner',
    faults: (run) => [`runner.after-final-commit=kill?${run}`],
    takeovers: 0,
  },
  {
    name: 'runner SIGSTOP past its lease, SIGCONT before its calls: commit and Execute are refused',
    faults: (run) => [`runner.after-commit-a=stop?${run}`],
    play: (stage) => playStopped(stage, 'runner.after-commit-a'),
    takeovers: 1,
  },
  {
    name: 'runner SIGSTOP past its lease, SIGCONT in the model stream: that is aborted',
    faults: (run) => [`runner.during-model-stream=stop?done ${run}`],
    // The first answer falls silent, until whoever asked for it gives up.
    answers: (stage) => (stage.isFirst('answer') ? { hangAfterChunks: 10 } : {}),
    play: async (stage) => {
      stage.margay.model.clear();
      await playStopped(stage, 'runner.during-model-stream');
      await stage.until(() => stage.margay.model.requests.some(({ aborted }) => aborted));
    },
    takeovers: 1,
  },
];

/** A runner stands still past its lease while another one finishes its run; then it wakes up. */
async function playStopped(stage: Stage, point: string): Promise<void> {
  const { world, actor } = stage;
  const playing = stage.playOne();
  const stopped = await world.struck(point, 'agent-runner');
  await world.startProcess('agent-runner-2');
  await playing;
  const { length } = await stage.commitsOf(actor);
  await world.margay.platform.get(stopped).kill('SIGCONT');
  await world.said(['the run has left this runner', '"outcome":"stopped"', actor.sessionId], stopped);
  expect(await stage.commitsOf(actor)).toHaveLength(length);
  await world.stopProcess('agent-runner-2');
}
