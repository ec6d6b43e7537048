import { Turns } from './turns';

describe('Turns', () => {
  it('runs the work of one key in order, also after a failure, and other keys beside it', async () => {
    const turns = new Turns();
    const seen: string[] = [];
    let open: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => (open = resolve));
    const first = turns.take('a', async () => {
      await gate;
      seen.push('a1');
      throw new Error('first fails');
    });
    const second = turns.take('a', async () => void seen.push('a2'));
    await turns.take('b', async () => void seen.push('b1'));
    open();
    await expect(first).rejects.toThrow('first fails');
    await second;
    await turns.idle();
    expect(seen).toEqual(['b1', 'a1', 'a2']);
  });
});
