import { armFaultPoints, faultPoint, parseFaultPlan, type FaultPointName } from './index';

let disarm: () => void = () => undefined;
const lines: string[] = [];
const report = { warn: (fields: object, sentence: string) => void lines.push(`${sentence} ${JSON.stringify(fields)}`) };
const arm = (plan?: string): void => {
  disarm = armFaultPoints(plan, report);
};

afterEach(() => {
  disarm();
  lines.length = 0;
});

/** Whether the point, armed with `throw`, strikes. */
function strikes(name: FaultPointName, detail?: string): boolean {
  try {
    void faultPoint(name, detail);
    return false;
  } catch {
    return true;
  }
}

describe('a process without faults', () => {
  it.each([undefined, '', ' ; '])('passes its points as if they were not there: %p', (plan) => {
    arm(plan);
    const detail = jest.fn(() => 'costly');
    expect(faultPoint('runner.before-commit-a', detail)).toBeUndefined();
    expect(detail).not.toHaveBeenCalled();
    expect(lines).toEqual([]);
  });
});

describe('a process armed with faults', () => {
  it('warns at its start and when one strikes', () => {
    arm('runner.during-call=throw?t1');
    strikes('runner.during-call', 'tool t1');
    expect(lines).toEqual([
      expect.stringMatching(/^this process is armed .*runner\.during-call throw/),
      expect.stringMatching(/^a fault point strikes .*"point":"runner.during-call","action":"throw"/),
    ]);
  });

  it('strikes once, at the first time unless another is named', () => {
    arm('runner.after-commit-a=throw;runner.after-commit-b=throw@3');
    const times = (name: FaultPointName) => [1, 2, 3, 4].map(() => strikes(name));
    expect(times('runner.after-commit-a')).toEqual([true, false, false, false]);
    expect(times('runner.after-commit-b')).toEqual([false, false, true, false]);
    expect(times('runner.before-commit-a')).toEqual([false, false, false, false]);
  });

  it('strikes each time where it is told so', () => {
    arm('session.after-insert=throw@*');
    expect([1, 2, 3].map(() => strikes('session.after-insert'))).toEqual([true, true, true]);
  });

  it('counts only the times whose detail contains the text', () => {
    arm('session.after-insert=throw@2?step');
    const details = ['s1 step', 's1 claim', 's1 claim,step', 's1 step'];
    expect(details.map((detail) => strikes('session.after-insert', detail))).toEqual([false, false, true, false]);
    disarm();
    arm('session.after-insert=throw?claim;session.after-insert=throw?step');
    expect(details.map((detail) => strikes('session.after-insert', detail))).toEqual([true, true, false, false]);
    disarm();
    arm('session.after-insert=throw?claim?step');
    expect(details.map((detail) => strikes('session.after-insert', detail))).toEqual([false, false, true, false]);
  });

  it('pauses only what waits for the point', async () => {
    arm('session.before-insert=pause:20');
    const startedMs = performance.now();
    let isOver = false;
    const held = faultPoint('session.before-insert')?.then(() => (isOver = true));
    // A point that had held all of the process would be over by now, however slow that is.
    await Promise.resolve();
    expect(held).toBeDefined();
    expect(isOver).toBe(false);
    await held;
    expect(performance.now() - startedMs).toBeGreaterThanOrEqual(19);
  });

  it.each([
    ['kill', 'SIGKILL'],
    ['stop', 'SIGSTOP'],
  ])('does %s to itself', (action, signal) => {
    const kill = jest.spyOn(process, 'kill').mockReturnValue(true);
    arm(`runner.during-model-stream=${action}`);
    void faultPoint('runner.during-model-stream');
    expect(kill.mock.calls).toEqual([[process.pid, signal]]);
    kill.mockRestore();
  });

  it('blocks all of the process', () => {
    arm('session.before-insert=block:20');
    const startedMs = performance.now();
    expect(faultPoint('session.before-insert')).toBeUndefined();
    expect(performance.now() - startedMs).toBeGreaterThanOrEqual(19);
  });
});

describe('a plan of faults', () => {
  it('is read item by item', () => {
    expect(parseFaultPlan('runner.before-commit-a=kill@2; session.after-insert=pause:3000@*?a=b:c?d')).toEqual([
      { point: 'runner.before-commit-a', action: { kind: 'kill' }, at: 2, texts: [] },
      { point: 'session.after-insert', action: { kind: 'pause', ms: 3000 }, at: 'always', texts: ['a=b:c', 'd'] },
    ]);
  });

  it.each([
    ['runner.before-commit-z=kill', 'no such point; known are runner.during-model-stream, '],
    ['runner.before-commit-a=explode', 'no such action; known are kill, stop'],
    ['runner.before-commit-a', 'write point=action'],
    ['runner.before-commit-a=kill@0', 'write point=action'],
    ['runner.before-commit-a=pause', 'pause needs milliseconds'],
    ['runner.before-commit-a=kill:5', 'kill takes no milliseconds'],
  ])('is refused as a whole for %s', (item, why) => {
    expect(() => arm(`session.after-insert=kill;${item}`)).toThrow(
      expect.objectContaining({
        code: 'INVALID_ARGUMENT',
        reason: 'bad_fault_points',
        message: expect.stringContaining(why),
      }),
    );
    expect(faultPoint('session.after-insert')).toBeUndefined();
  });
});
