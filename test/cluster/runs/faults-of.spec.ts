import { faultsOf } from './faults-of';
import { COUNT_FILE, type Followed } from './script';

const NAME = 'run-a-7';
const event = (type: string, payload: object) => JSON.stringify({ type, payload });
const result = (tool_input: object, more: object = {}) => event('tool_result', { tool_id: 'tool', tool_input, success: true, ...more }); // prettier-ignore
const noted = result({ token: `${NAME}-0` });
const counted = result({ command: `echo ${NAME}-1 >> ${COUNT_FILE}` });
const read = (...tokens: string[]) => result({ command: `cat ${COUNT_FILE}` }, { result: JSON.stringify({ stdout: tokens.join('\n') }) }); // prettier-ignore
const end = event('completion', { done_reason: 'completed' });

const notes = [`${NAME}-0`, 'run-a-70-0', 'run-b-7-0'];
const whole = [event('user', {}), noted, counted, read(`${NAME}-1`), end];
const faults = (stored: string[], more: Partial<Followed> = {}) =>
  faultsOf({ name: NAME, sessionId: 's', streamed: stored, stored, connections: 1, verified: true, ...more }, notes);

describe('what is wrong with a run of a cluster test', () => {
  it('is nothing where it ended once, was seen whole, and took effect once', () => {
    expect(faults(whole)).toEqual([]);
  });

  it.each([
    ['no end', whole.slice(0, -1), /0 terminal events/],
    ['two ends', [...whole, end], /2 terminal events/],
    ['a failure', [...whole.slice(0, -1), event('completion', { done_reason: 'error', error: 'broken' })], /ended as error: broken/], // prettier-ignore
    ['a failed call', [result({ token: 'x' }, { success: false }), ...whole], /call of tool failed/],
    ['an effect that is missing', [result({ token: `${NAME}-5` }), ...whole], /run-a-7-5 took effect 0 times/],
    ['an effect that is there twice', whole.with(3, read(`${NAME}-1`, `${NAME}-1`)), /run-a-7-1 took effect 2 times/],
  ])('%s', (_, stored, words) => {
    expect(faults(stored)).toEqual([expect.stringMatching(words)]);
  });

  it.each([
    ['lost', whole.toSpliced(2, 1)],
    ['repeated', whole.toSpliced(2, 0, noted)],
    ['reordered', whole.with(1, counted).with(2, noted)],
    ['missing at the end', whole.slice(0, -1)],
  ])('an event that the client saw %s', (_, streamed) => {
    expect(faults(whole, { streamed })).toEqual([expect.stringMatching(/its client saw \d of 5 events/)]);
  });

  it('a log that is not in order', () => {
    expect(faults(whole, { verified: false })).toEqual([expect.stringMatching(/log is not in order/)]);
  });
});
