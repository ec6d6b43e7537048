import type { Command } from './command';
import { acceptCommand, createCommand, hashed } from './contract/sample-commands';
import { fold } from './build';
import { bindingOf } from './decide-bind';
import { tipOf, type CommitDocument, type Tip } from './document';
import { emptyHead } from './head';

const RUN_ID = 'session:r1';
const SHOP = { project: 'shop', cwd: null };
const bind = (project: string | null, commitId = `bind ${project}`): Command => ({
  kind: 'bind',
  commitId,
  binding: { project, cwd: null },
  context: { project },
});
const accept = acceptCommand('one', { binding: SHOP, context: { project: 'shop' } });
const claim: Command = { kind: 'claim', commitId: 'claim', runId: RUN_ID, epoch: 1, owner: 'runner' };
const cancel: Command = { kind: 'cancel', commitId: 'cancel' };

/** The last of some commits, each of the commands given together. */
function last(...batches: Command[][]): CommitDocument {
  let tip: Tip = { head: emptyHead('session'), hash: '' };
  return batches.map((batch, index) => {
    const { document } = fold(tip, batch.map(hashed), 1_700_000_000_000_000 + index * 1_000);
    if (!document) throw new Error('refused');
    tip = tipOf(document);
    return document;
  })[batches.length - 1] as CommitDocument;
}

const left = ({ effects }: CommitDocument) => effects.filter(({ kind }) => kind === 'leave');

describe('binding a session anew', () => {
  it('appends a context, and the next run works there', () => {
    const bound = last([createCommand()], [accept], [cancel], [bind('lab')]);
    expect(bound.events.map(({ frame }) => JSON.parse(frame))).toMatchObject([
      { type: 'context', payload: { project: 'lab' } },
    ]);
    expect(bound.head).toMatchObject({ binding: { project: 'lab' }, context: { project: 'lab' } });
    expect(bound.head.formerProjects).toEqual(['shop']);
    expect(bound.commands[0]?.answer).toEqual({ session_id: 'session', project: 'lab' });
  });

  it('ends the sandbox of the workspace that is left, unless none was ever used', () => {
    expect(left(last([createCommand()], [accept], [cancel], [bind('lab')]))).toEqual([{ kind: 'leave', epoch: 2 }]);
    expect(left(last([createCommand()], [bind('lab')]))).toEqual([]);
    expect(left(last([createCommand()], [accept], [cancel], [bind('shop')]))).toEqual([]);
  });

  it('leaves an active run where it works, to its end', () => {
    const bound = last([createCommand()], [accept], [claim], [bind('lab')]);
    expect(bindingOf(bound.head)).toEqual(SHOP);
    expect(left(bound)).toEqual([]);
    const twice = last([createCommand()], [accept], [claim], [bind('lab')], [bind('den')]);
    expect(bindingOf(twice.head)).toEqual(SHOP);
    const ended = last([createCommand()], [accept], [claim], [bind('lab')], [cancel]);
    expect(bindingOf(ended.head)).toEqual({ project: 'lab', cwd: null });
    expect(left(ended)).toEqual([{ kind: 'leave', epoch: 3 }]);
    expect(left(last([createCommand()], [accept], [claim], [bind('lab')], [bind('shop')], [cancel]))).toEqual([]);
  });

  it('leaves it the class of sandboxes that it was accepted with, also for whoever takes it over', () => {
    const dense = acceptCommand('one', { binding: SHOP, context: { project: 'shop' }, sandboxClass: 'dense' });
    const takeover: Command = { kind: 'takeover', commitId: 'takeover', runId: RUN_ID, epoch: 2, cause: 'crash' };
    const { head } = last([createCommand()], [dense], [claim], [bind('lab')], [takeover]);
    expect(head.run).toMatchObject({ state: 'queued', sandboxClass: 'dense' });
    expect(last([createCommand()], [accept]).head.run).not.toHaveProperty('sandboxClass');
  });

  it('tells nothing to leave where the next run has begun in the same commit: its claim ends what is out of place', () => {
    expect(left(last([createCommand()], [accept], [cancel], [bind('lab'), acceptCommand('two')]))).toEqual([]);
  });

  it('is what a run says that was asked for before', () => {
    const late = acceptCommand('two', { binding: SHOP, context: { project: 'shop', mode: 'act' } });
    const { head, events } = last([createCommand()], [accept], [cancel], [bind('lab'), late]);
    expect(head).toMatchObject({ binding: { project: 'lab' }, context: { project: 'lab' } });
    expect(events.map(({ frame }) => JSON.parse(frame).payload.project)).toEqual(['lab', 'lab', undefined, undefined]);
  });

  it('remembers the last sixteen projects, each once', () => {
    const binds = Array.from({ length: 20 }, (_, index) => [bind(`p${index}`)]);
    const { head } = last([createCommand()], ...binds, [bind('p18', 'again')]);
    expect(head.formerProjects).toHaveLength(16);
    expect(head.formerProjects?.at(-1)).toBe('p19');
    expect(head.formerProjects).not.toContain('p18');
  });

  it('is the same request whatever the project says of itself', () => {
    const [first, second] = [bind('lab'), { ...bind('lab'), context: { project: 'lab', branch: 'main' } } as Command];
    expect(hashed(first).bodyHash).toBe(hashed(second).bodyHash);
    expect(hashed(first).bodyHash).not.toBe(hashed(bind('den', 'bind lab')).bodyHash);
  });
});
