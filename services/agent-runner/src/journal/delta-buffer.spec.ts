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

it('sends a large text in pieces that the bus carries, each at its place and none of them half a character', () => {
  const text = `x${'😀'.repeat(100_000)}\u0000`;
  add(10, text);
  expect(sent.length).toBeGreaterThan(1);
  expect(sent.map((delta) => delta.text).join('')).toBe(text);
  let offset = 10;
  for (const delta of sent) {
    expect(delta.offset).toBe(offset);
    expect(delta.text.isWellFormed()).toBe(true);
    expect(JSON.stringify('\u0000'.repeat(delta.text.length)).length).toBeLessThan(900_000);
    offset += delta.text.length;
  }
});

it('sends what was put together in pieces too', () => {
  add(0, 'a');
  for (let offset = 1; offset < 200_001; offset += 1_000) add(offset, 'b'.repeat(1_000));
  buffer.flush();
  expect(sent.map(({ text }) => text).join('')).toBe(`a${'b'.repeat(200_000)}`);
  expect(Math.max(...sent.map(({ text }) => text.length))).toBeLessThanOrEqual(65_536);
});
