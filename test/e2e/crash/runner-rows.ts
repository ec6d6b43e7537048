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
    name: 'runner SIGSTOP past its lease, SIGCONT: commit and Execute refused, model stream aborted',
    faults: (run) => [`runner.after-commit-a=stop?${run}`],
    // The second user's first answer falls silent, until whoever asked for it gives up.
    steps: (run) => {
      if (isSecond(run)) return [];
      return isThird(run) ? [[count(run, 0, LONG_SECONDS)]] : [[count(run, 0, 0.3), edit(run, 1)]];
    },
    answers: (stage, run) => (isSecond(run) && stage.isFirst('answer') ? { hangAfterChunks: 5 } : {}),
    play: playStopped,
    takeovers: 2,
  },
];

const isSecond = (run: string): boolean => /run-1\d\d-/.test(run);
const isThird = (run: string): boolean => /run-2\d\d-/.test(run);

/** A runner stands still past its lease while another one finishes its runs; then it wakes up, and is as good as new. */
async function playStopped(stage: Stage): Promise<void> {
  const { world, margay } = stage;
  const waiting = await stage.enter();
  margay.model.clear();
  const waited = stage.playOne(waiting);
  await margay.model.waitForRequests(1);
  const played = stage.playOne();
  const stopped = await world.struck('runner.after-commit-a', 'agent-runner');
  await world.startProcess('agent-runner-2');
  await Promise.all([played, waited]);
  const stored = await Promise.all(stage.actors.map((actor) => stage.commitsOf(actor)));
  await margay.platform.get(stopped).kill('SIGCONT');
  for (const { sessionId } of stage.actors)
    await world.said(['the run has left this runner', '"outcome":"stopped"', sessionId], stopped);
  await stage.until(() => margay.model.requests.some(({ aborted }) => aborted));
  expect(await Promise.all(stage.actors.map((actor) => stage.commitsOf(actor)))).toEqual(stored);
  await world.stopProcess('agent-runner-2');
  await stage.playOne(await stage.enter());
}
