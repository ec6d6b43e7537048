import { describe as describeFault, planFaults, planShort } from './plan';

it('plans the same faults for the same seed, and others for another', () => {
  expect(planFaults(7, 50)).toEqual(planFaults(7, 50));
  expect(planFaults(7, 50)).not.toEqual(planFaults(8, 50));
  expect(planFaults(7, 10)).toEqual(planFaults(7, 50).slice(0, 10));
});

it('plans other kinds only where it is told to', () => {
  const kinds = new Set(planFaults(7, 50, ['kill', 'sandbox-kill']).map(({ kind }) => kind));
  expect([...kinds].toSorted()).toEqual(['kill', 'sandbox-kill']);
});

it('plans every kind of fault for every kind of process', () => {
  const said = planFaults(1, 2_000).map(describeFault).join('\n');
  for (const process of [
    'agent-runner',
    'agent-runner-2',
    'session',
    'session-2',
    'gateway',
    'gateway-2',
    'tool-executor',
  ])
    for (const kind of ['kill', 'stop']) expect(said).toContain(`${kind} ${process} `);
  for (const peer of ['session', 'executor', 'model'])
    for (const way of ['silently', 'by cutting']) expect(said).toContain(`from ${peer} ${way}`);
  for (const part of ['broker-wipe', 'store-kill', 'store-freeze for 20000 ms', 'drop-acks session-2', 'sandbox-kill'])
    expect(said).toContain(part);
  for (const part of ['terminate agent-runner', 'by 30000 ms', 'by -30000 ms', 'stop agent-runner for 18000 ms'])
    expect(said).toContain(part);
});

it('plans one short fault of every kind, in an order that the seed decides', () => {
  const kinds = (seed: number): string[] => planShort(seed).map(({ kind }) => kind);
  expect(kinds(7)).toEqual(kinds(7));
  expect(kinds(7)).not.toEqual(kinds(8));
  expect(kinds(7).toSorted()).toEqual(kinds(8).toSorted());
  expect(Math.max(...planShort(7).map(({ durationMs }) => durationMs))).toBeLessThanOrEqual(4_000);
});
