import { streamCursor } from './cursor';
import { numbered, sseFrames } from './feed-commit';
import { StoreGeneration } from './store-generation';
import { UnavailableError, UnimplementedError } from '@margay/errors';

const frames = [{ seq: 7, ts: 1, json: '{}' }];

describe('ids of frames', () => {
  it('are numbers alone in the first generation of the store, and hold the generation afterwards', () => {
    expect(sseFrames(frames, numbered(0))).toBe('id: 7\ndata: {}\n\n');
    expect(sseFrames(frames, numbered(3))).toBe('id: 3.7\ndata: {}\n\n');
    expect(sseFrames(frames, 'plain')).toBe('data: {}\n\n');
    expect(sseFrames(frames, 'named', 's1')).toBe('event: s1\ndata: {}\n\n');
  });

  it.each([
    ['7', 0, 6],
    ['3.7', 3, 6],
    [' 3.7 ', 3, 6],
  ])('%j of generation %d goes on behind that event', (id, generation, value) => {
    expect(streamCursor(id, '2000-01-01', generation).from).toEqual({ $case: 'afterSeq', value });
  });

  it.each([
    ['7', 1],
    ['1.7', 0],
    ['1.7', 2],
    ['x', 0],
    ['0', 0],
    ['1.2.3', 1],
  ])('%j of another generation than %d starts over', (id, generation) => {
    expect(streamCursor(id, '2000-01-01', generation).from).toEqual({ $case: 'afterCommit', value: 0 });
  });
});

describe('the generation of the store', () => {
  let answer: () => Promise<{ generation: number }>;
  let asked = 0;
  let nowMs = 0;
  const backends = { instances: { describeStore: () => ((asked += 1), answer()) } } as never;

  it('is asked for once in five seconds', async () => {
    const generation = new StoreGeneration(backends, () => nowMs);
    answer = async () => ({ generation: 1 });
    expect([await generation.get(), await generation.get(), asked]).toEqual([1, 1, 1]);
    answer = async () => ({ generation: 2 });
    nowMs += 5_000;
    expect([await generation.get(), asked]).toEqual([2, 2]);
  });

  it('is the first one at a session replica that knows none, and unknown where nobody answers', async () => {
    answer = () => Promise.reject(new UnimplementedError('unimplemented', 'is not offered'));
    expect(await new StoreGeneration(backends).get()).toBe(0);
    answer = () => Promise.reject(new UnavailableError('away', 'nobody is there'));
    await expect(new StoreGeneration(backends).get()).rejects.toMatchObject({ reason: 'away' });
  });
});
