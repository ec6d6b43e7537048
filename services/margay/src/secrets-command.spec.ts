import { parseSecretsCommand, rotateKek } from './secrets-command';

const lines: string[] = [];
const close = jest.fn(() => Promise.resolve());

const run = (left: Map<string, number>) => {
  lines.length = 0;
  const open = () => Promise.resolve({ close, rotateKek: () => Promise.resolve({ active: 'k2', rewrapped: 3, left }) });
  return rotateKek({ environment: {}, open, write: (line) => lines.push(line) });
};

describe('margay secrets rotate-kek', () => {
  it('says how many data keys it wrapped, and that the old key may go', async () => {
    expect(await run(new Map())).toBe(0);
    expect(lines).toEqual(['3 data keys wrapped anew with k2', 'no data key needs another one than k2']);
    expect(close).toHaveBeenCalled();
  });

  it('fails while data keys need another key', async () => {
    expect(await run(new Map([['k1', 2]]))).toBe(1);
    expect(lines).toContain('2 data keys still need k1: run this again');
  });

  it.each([[[]], [['rotate']], [['rotate-kek', '--all']]])('is not called with %j', (argv) => {
    expect(() => parseSecretsCommand(argv)).toThrow(/Usage: margay.cjs secrets rotate-kek/);
  });
});
