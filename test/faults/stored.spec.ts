import { emptyHead, fold, tipOf, type Command, type CommitDocument } from '@margay/log';
import { MongoCommitStore } from '@margay/session';
import { acceptCommand, createCommand, hashed, messageCommand } from '@margay/testing';
import { BSON } from 'mongodb';
import { hashAfter, readCommit, type RawCommit } from './stored';

const SESSION = '0123456789abcdef0123456789abcdef';
const RUN = `${SESSION}:r1`;

const call = { tool_call_id: `${SESSION}.2.1.0`, tool_id: 'read_file', operation: 'get', tool_input: { path: 'ž 🐆' } };
const claim: Command = { kind: 'claim', commitId: `claim.${RUN}.1.x`, runId: RUN, epoch: 1, owner: '08d93ce3ff9309f9' };
const step: Command = {
  kind: 'step',
  commitId: `${RUN}.2.1`,
  runId: RUN,
  epoch: 2,
  events: [
    { type: 'agent_message', payload: { agent_id: 'root', depth: 0, text: 'kept once only, and then referenced' } },
    { type: 'tool_call', payload: { agent_id: 'root', model: 'm', ...call } },
  ],
  records: [{ kind: 'assistant', agentId: 'root', text: 'kept once only, and then referenced', step: 1 }],
  sandbox: { incarnation: 'i' },
};
const batches: Command[][] = [
  [createCommand({ context: { model: 'm', 'a.b': { $set: null } } })],
  [acceptCommand('"seq":1,"run_id":"x"}', { attachments: [{ '': '\u0001' }] })],
  [claim],
  [step],
  [messageCommand(`{"ts":"${SESSION}"} \ud800`), { kind: 'interrupt', commitId: 'i' }],
  [{ kind: 'cancel', commitId: 'c' }],
];

/** What the session service writes, as the driver reads it. */
async function writtenBy(document: CommitDocument): Promise<RawCommit> {
  let written: object = {};
  const collection = { insertOne: async (row: object) => void (written = row) };
  await new MongoCommitStore(collection as never, {} as never).insert(document);
  return BSON.deserialize(BSON.serialize(written)) as RawCommit;
}

it("reads what the session service stores: every frame, and a body that has the document's hash", async () => {
  let tip = { head: emptyHead(SESSION), hash: '' };
  for (const [index, commands] of batches.entries()) {
    const { document } = fold(tip, commands.map(hashed), 1_700_000_000_000_000 + index * 1_000);
    if (!document) throw new Error('document expected');
    const read = readCommit(await writtenBy(document));
    expect(read.frames).toEqual(document.events.map(({ frame }) => frame));
    expect(read.head).toEqual(document.head);
    expect(read.hash).toBe(document.hash);
    expect(hashAfter(tip.hash, read)).toBe(document.hash);
    tip = tipOf(document);
  }
});
