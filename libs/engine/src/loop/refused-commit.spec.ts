import { runWorld } from '@margay/testing';

const CALLS = 700;

it('ends a run in words when the log refuses what it wants to store: the next owner would write the same', async () => {
  // Many short texts: nothing to put into blobs, and more than one commit holds.
  const calls = Array.from({ length: CALLS }, (_, index) => ({ name: `nowhere-${index}`.padEnd(400, '.') }));
  const world = await runWorld([{ calls }], [], { limits: { callsTaken: CALLS } });
  const result = await world.session.run('go');
  expect(result).toMatchObject({ status: 'failed', doneReason: 'error' });
  expect(await world.payloads('completion')).toEqual([
    expect.objectContaining({
      done_reason: 'error',
      failure_reason: 'internal',
      error: expect.stringContaining('commit'),
    }),
  ]);
  expect(await world.payloads('assistant')).toHaveLength(1);
});

it('ends the step of a model that nests its arguments without end like one of malformed arguments', async () => {
  const args = `{"a":${'['.repeat(50_000)}${']'.repeat(50_000)}}`;
  const world = await runWorld([{ calls: [{ name: 'nowhere', args }] }, { text: 'done' }]);
  expect(await world.session.run('go')).toMatchObject({ status: 'completed', text: 'done' });
});
