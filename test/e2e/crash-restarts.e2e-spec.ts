import { answer, byConversation, callTools } from '@margay/testing';
import { PlatformHarness } from './harness';

jest.setTimeout(180_000);

const margay = new PlatformHarness({ mode: 'combined', runners: 2 });

beforeAll(() => margay.start(), 600_000);
afterAll(() => margay.stop(), 180_000);

const RUNNERS = ['agent-runner', 'agent-runner-2'];

async function restartRunners(): Promise<void> {
  await Promise.all(RUNNERS.map((name) => margay.platform.restart(name)));
}

async function countOf(sessionId: string, type: string): Promise<number> {
  const frames = await margay.storedFrames(sessionId);
  return frames.filter((text) => (JSON.parse(text) as { type: string }).type === type).length;
}

it('goes on when the control process is killed in the middle of a command, whose sandbox is gone with it', async () => {
  margay.script(
    byConversation(({ results }) =>
      results.length < 3
        ? callTools({ name: 'aider_shell_tool', arguments: { command: `sleep 1; echo ${results.length}` } })
        : answer('outlived'),
    ),
  );
  const session = await margay.sessionWith({});
  const run = await session.query('go');
  for await (const event of run.events()) if (event.type === 'tool_result') break;
  await margay.platform.get('control').kill('SIGKILL');
  await margay.platform.restart('control');
  expect(await run.result()).toMatchObject({ status: 'completed', text: 'outlived' });
  expect(await countOf(session.id, 'completion')).toBe(1);
  // Runners that had no session service for more than ten seconds attach again, too.
  await margay.platform.get('control').stop();
  await new Promise((resolve) => setTimeout(resolve, 11_000));
  await margay.platform.restart('control');
  margay.script(() => answer('attached again'));
  const next = await margay.sessionWith({});
  expect(await (await next.query('go')).result()).toMatchObject({ text: 'attached again' });
}, 180_000);

it('hands a run over at SIGTERM', async () => {
  margay.script(
    byConversation(({ results }) =>
      results.length === 0
        ? callTools({ name: 'aider_shell_tool', arguments: { command: 'sleep 4; echo done' } })
        : answer('handed over'),
    ),
  );
  const session = await margay.sessionWith({});
  const run = await session.query('go');
  for await (const event of run.events()) if (event.type === 'tool_call') break;
  await restartRunners();
  expect(await run.result()).toMatchObject({ status: 'completed', text: 'handed over' });
  expect(await countOf(session.id, 'tool_result')).toBe(1);
}, 180_000);

it('goes on where it was after everything was stopped and started again', async () => {
  margay.script(
    byConversation(({ results }) =>
      results.length < 2
        ? callTools({ name: 'read_file', arguments: { path: 'a.txt', limit: 10 + results.length } })
        : answer('survived', { delayMs: 2_000 }),
    ),
  );
  const session = await margay.sessionWith({ 'a.txt': 'a' });
  const run = await session.query('go');
  let results = 0;
  for await (const event of run.events()) if (event.type === 'tool_result' && ++results === 2) break;
  await margay.platform.stop();
  await margay.startPlatform();
  const again = margay.client.session(session.id);
  for await (const item of again.stream())
    if (item.type === 'completion') expect(item.payload.done_reason).toBe('completed');
  expect(await countOf(session.id, 'tool_result')).toBe(2);
  expect(await countOf(session.id, 'assistant')).toBe(1);
}, 180_000);

it('cancels: the model stream is closed, the processes are dead, and the session can be used again', async () => {
  margay.script(
    byConversation(() => callTools({ name: 'aider_shell_tool', arguments: { command: 'sleep 120 & sleep 120' } })),
  );
  const session = await margay.sessionWith({});
  const run = await session.query('go');
  for await (const event of run.events()) if (event.type === 'tool_call') break;
  await new Promise((resolve) => setTimeout(resolve, 500));
  expect(await session.cancel()).toBe(true);
  expect(await run.result()).toMatchObject({ status: 'canceled' });
  margay.script(() => answer('usable'));
  expect(await (await session.query('again')).result()).toMatchObject({ text: 'usable' });
  expect(await session.cancel()).toBe(false);
}, 180_000);
