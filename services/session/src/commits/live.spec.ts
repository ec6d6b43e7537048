import { fold, emptyHead, type CommitDocument } from '@margay/log';
import { acceptCommand, createCommand, hashed } from '@margay/testing';
import { commitNumberOf, publishCommit } from './live';

function commit(text: string): CommitDocument {
  const tip = { head: emptyHead('s'), hash: '' };
  const { document } = fold(tip, [createCommand(), acceptCommand(text)].map(hashed), 1_700_000_000_000_000);
  if (!document) throw new Error('document expected');
  return document;
}

function published(text: string): Buffer {
  const messages: Buffer[] = [];
  publishCommit({ publish: (_, data) => messages.push(Buffer.from(data)) }, commit(text));
  return messages[0] as Buffer;
}

describe('an announced commit', () => {
  it('carries its frames as they are stored', () => {
    const { frames } = JSON.parse(published('hello').toString()) as { frames: [number, number, string][] };
    expect(frames.map(([, , frame]) => frame)).toEqual(commit('hello').events.map(({ frame }) => frame));
  });

  it.each([
    ['characters of three bytes', '語'.repeat(90_000)],
    ['characters that are escaped twice', '"'.repeat(90_000)],
  ])('stays within 256 KB, also for %s', (_, text) => {
    const data = published(text);
    expect(data.length).toBeLessThanOrEqual(256 * 1024);
    expect(JSON.parse(data.toString())).not.toHaveProperty('frames');
  });

  it('tells its number without being parsed', () => {
    expect(commitNumberOf(published('hello'))).toBe(1);
    expect(commitNumberOf(Buffer.from('{"c":1234567,"state":""}'))).toBe(1_234_567);
  });

  it('names no number where there is none', () => {
    expect(commitNumberOf(Buffer.from('rubbish'))).toBe(0);
  });
});
