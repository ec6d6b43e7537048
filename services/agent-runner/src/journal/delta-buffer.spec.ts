import { DeltaBuffer, type Delta } from './delta-buffer';

let sent: Delta[];
let buffer: DeltaBuffer;

beforeEach(() => {
  jest.useFakeTimers();
  sent = [];
  buffer = new DeltaBuffer((delta) => sent.push(delta));
});
afterEach(() => jest.useRealTimers());

const add = (offset: number, text: string, more: Partial<Delta> = {}) =>
  buffer.add({ agentId: 'a', depth: 0, step: 1, offset, text, followsC: 7, ...more });
const texts = () => sent.map(({ offset, text }) => `${offset} ${text}`);

it('sends the first fragment at once and what follows together, 50 ms later', () => {
  add(0, 'a');
  add(1, 'b');
  add(2, 'c');
  expect(texts()).toEqual(['0 a']);
  jest.advanceTimersByTime(50);
  expect(texts()).toEqual(['0 a', '1 bc']);
  jest.advanceTimersByTime(1_000);
  add(3, 'd');
  expect(texts()).toEqual(['0 a', '1 bc', '3 d']);
  expect(jest.getTimerCount()).toBe(0);
});

it('puts nothing together that does not follow: another step, a text that began anew', () => {
  add(0, 'a');
  add(1, 'b');
  add(0, 'x', { step: 2 });
  add(0, 'y', { step: 2 });
  buffer.flush();
  expect(texts()).toEqual(['0 a', '1 b', '0 x', '0 y']);
});

it('keeps the fragments of different agents apart', () => {
  add(0, 'a');
  add(0, 'b', { agentId: 'b' });
  add(1, 'c');
  add(1, 'd', { agentId: 'b' });
  buffer.flush();
  expect(sent.map(({ agentId, text }) => `${agentId} ${text}`)).toEqual(['a a', 'b b', 'a c', 'b d']);
});

it('sends what is left and stops its timer when it is flushed', () => {
  add(0, 'a');
  add(1, 'b');
  buffer.flush();
  expect(texts()).toEqual(['0 a', '1 b']);
  expect(jest.getTimerCount()).toBe(0);
});
