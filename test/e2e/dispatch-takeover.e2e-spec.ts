import { answer, byConversation, callTools } from '@margay/testing';
import { StoreReader } from '../faults/store-reader';
import { PlatformHarness } from './harness';

/** At the pace of production: how long a takeover takes is printed. */
const margay = new PlatformHarness({ mode: 'combined', readyTimeoutMs: 60_000, copiesBundles: true });
let reader: StoreReader;

beforeAll(async () => {
  await margay.start();
  reader = new StoreReader(margay.storeUrl, margay.database);
}, 600_000);
afterAll(async () => {
  await reader?.close();
  await margay.stop();
}, 180_000);

it('takes over the run of a runner that was killed while nobody was there to see it', async () => {
  margay.script(
    byConversation(({ results }) =>
      results.length < 2
        ? callTools({ name: 'read_file', arguments: { path: 'a.txt', limit: 10 + results.length } })
        : answer('outlived', { delayMs: 1_500 }),
    ),
  );
  const session = await margay.sessionWith({ 'a.txt': 'a' });
  const run = await session.query('go');
  let results = 0;
  for await (const event of run.events()) if (event.type === 'tool_result' && ++results === 2) break;
  await margay.platform.get('control').kill('SIGKILL');
  const diedMs = Date.now();
  await margay.platform.get('agent-runner').kill('SIGKILL');
  await margay.platform.restart('control');
  const backMs = Date.now();
  await margay.platform.restart('agent-runner');
  expect(await run.result()).toMatchObject({ status: 'completed', text: 'outlived' });
  const commits = await reader.commitsOf(session.id);
  const claim = commits.findLast(
    ({ head }, index) => head.run?.state === 'running' && commits[index - 1]?.head.run?.state === 'queued',
  );
  const claimedMs = Math.round((claim?.ts0 ?? 0) / 1_000);
  process.stderr.write(
    `next owner ${claimedMs - diedMs} ms after the kill, ${claimedMs - backMs} ms after control was back (aim 17000 ms)\n`,
  );
  expect(commits.flatMap(({ commitIds }) => commitIds).filter((id) => id.startsWith('takeover.'))).toHaveLength(1);
}, 120_000);
