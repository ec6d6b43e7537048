import type { runnersPb } from '@margay/contracts';
import { SessionService } from './session-service';

const service = new SessionService();

beforeAll(() => service.start(), 600_000);
afterAll(() => service.stop());

const lifeOf = ({ runId, epoch }: runnersPb.Assign): string => `${runId} ${epoch}`;
const timesRevoked = (assign: runnersPb.Assign): number =>
  service.revoked.filter((life) => life === lifeOf(assign)).length;

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  const endMs = performance.now() + 50_000;
  while (!(await holds()) && performance.now() < endMs) await new Promise((resolve) => setTimeout(resolve, 10));
  expect(await holds()).toBe(true);
}

/** Reports the end of a run's process, and once more, as after a cut stream. */
async function dies(assign: runnersPb.Assign): Promise<void> {
  service.reportDied(assign);
  service.reportDied(assign);
  await until(() => timesRevoked(assign) === 2);
}

it('takes a run back once however often its end is told, isolates it, and parks it at last', async () => {
  const first = await service.newRun();
  await dies(first);
  const second = await service.assignOf(first.sessionId);
  await dies(second);
  const third = await service.assignOf(first.sessionId);
  expect([first, second, third].map(({ isolated }) => isolated)).toEqual([false, false, true]);
  expect([second.epoch - first.epoch, third.epoch - second.epoch]).toEqual([2, 2]);
  // Of an owner that is past already.
  service.reportDied(second);
  await until(() => timesRevoked(second) === 3);
  const completions = async () =>
    (await service.events(first.sessionId)).filter(({ type }) => type === 'completion').map(({ payload }) => payload);
  expect(await completions()).toEqual([]);
  await dies(third);
  expect(await completions()).toEqual([expect.objectContaining({ done_reason: 'error', failure_reason: 'poison' })]);
}, 180_000);
