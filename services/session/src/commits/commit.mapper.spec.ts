import { hashOf, fold, emptyHead, tipOf, type Command, type CommitDocument, type Tip } from '@margay/log';
import { acceptCommand, createCommand, hashed, messageCommand } from '@margay/testing';
import { BSON } from 'mongodb';
import { fromStored, toStored, type StoredCommit } from './commit.mapper';

const SESSION = '0123456789abcdef0123456789abcdef';
const RUN = `${SESSION}:r1`;
const START: Tip = { head: emptyHead(SESSION), hash: '' };

/** Through BSON, like a real store. */
function stored(document: CommitDocument): StoredCommit {
  return BSON.deserialize(BSON.serialize(toStored(document))) as StoredCommit;
}

function chain(batches: Command[][]): CommitDocument[] {
  let tip = START;
  return batches.map((commands, index) => {
    const { document } = fold(tip, commands.map(hashed), 1_700_000_000_000_000 + index * 1_000);
    if (!document) throw new Error('document expected');
    tip = tipOf(document);
    return JSON.parse(JSON.stringify(document)) as CommitDocument;
  });
}

function step(epoch: number, text: string): Command {
  const callId = `${SESSION}.${epoch}.1.0`;
  const agent = { agent_id: 'root', model: 'm' };
  return {
    kind: 'step',
    commitId: `${RUN}.${epoch}.1`,
    runId: RUN,
    epoch,
    events: [
      { type: 'agent_message', payload: { agent_id: 'root', depth: 0, text } },
      {
        type: 'tool_call',
        payload: { ...agent, tool_id: 'read_file', operation: 'get', tool_input: {}, tool_call_id: callId },
      },
    ],
    records: [{ kind: 'assistant', agentId: 'root', text, toolCalls: [{ callId, name: 'read_file' }] }],
  };
}

const claim: Command = { kind: 'claim', commitId: `claim.${RUN}.1.x`, runId: RUN, epoch: 1, owner: '08d93ce3ff9309f9' };

const life = chain([
  [createCommand({ context: { model: 'm', 'a.b': { $set: null } } })],
  [acceptCommand('"seq":1,"run_id":"x"}', { attachments: [{ '': '\u0001 žluť 🐆' }] })],
  [claim],
  [step(2, 'a text that is long enough to be kept once only, and then referenced by the record')],
  [messageCommand(`{"ts":"${SESSION}"} \u0001`), { kind: 'interrupt', commitId: 'i' }],
  [{ kind: 'cancel', commitId: 'c' }],
  [{ kind: 'bind', commitId: 'b', binding: { project: 'x', cwd: null }, context: { project: 'x' } }],
  [{ kind: 'terminate', commitId: 't', cancelledTriggers: 0 }],
]);

describe('a stored commit', () => {
  it.each(life.map((document) => [document.commands.map(({ commitId }) => commitId).join(), document] as const))(
    'gives back the commit and its hash: %s',
    (_, document) => {
      const found = fromStored(stored(document));
      expect(found).toEqual(document);
      expect(JSON.stringify(found.events)).toBe(JSON.stringify(document.events));
      expect(hashOf(life[document.c - 2]?.hash ?? '', found)).toBe(document.hash);
    },
  );

  it.each<[string, (document: CommitDocument) => void]>([
    ['a hash that is none', (document) => (document.hash = 'another')],
    ['ids of other commands', (document) => (document.commitIds = ['x', 'y', 'z'])],
    ['a frame of another form', ({ events }) => events[0] && (events[0].frame = '{"payload":1,"type":"session"}')],
    ['a frame without payload', ({ events }) => events[0] && (events[0].frame = '{}')],
    ['a frame with another time', ({ events }) => events[0] && (events[0].ts += 1)],
    ['a frame with another number', ({ events }) => events[1] && (events[1].seq = 77)],
    ['a mark', (document) => (document.effectsDueAt = 1_700_000_000_123)],
    ['a head of another number', ({ head }) => (head.c = 99)],
    ['a head of another time', ({ head }) => (head.ts += 5)],
    ['a head of another tenant', ({ head }) => (head.tenantId = 'other')],
  ])('keeps what can not be derived: %s', (_, change) => {
    const document = structuredClone(life[3] as CommitDocument);
    change(document);
    expect(fromStored(stored(document))).toEqual(document);
  });

  it('takes less than 60 % of the same commit written out', () => {
    const document = life[3] as CommitDocument;
    const { head, ...rest } = document;
    const whole = BSON.calculateObjectSize({ ...rest, head: JSON.stringify(head) });
    expect(BSON.calculateObjectSize(toStored(document))).toBeLessThan(whole * 0.6);
  });
});

it('refuses a commit that a newer Margay wrote, and says which', () => {
  const [document] = chain([[createCommand()]]);
  const newer = { ...stored(document as CommitDocument), v: 2 } as unknown as StoredCommit;
  expect(() => fromStored(newer)).toThrow(
    expect.objectContaining({ code: 'FAILED_PRECONDITION', reason: 'commit_version_unknown' }),
  );
});
