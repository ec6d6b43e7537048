import { fold, emptyHead, tipOf, type Command, type CommitDocument } from '@margay/log';
import { sessionsPb } from '@margay/contracts';
import { acceptCommand, createCommand, hashed } from '@margay/testing';
import { MongoCommitStore } from '../commits/mongo-commit-store';
import { ScriptedRunner } from './scripted-runner';
import { SessionHarness } from './session-harness';

const harness = new SessionHarness();
let store: MongoCommitStore;
let count = 0;

beforeAll(async () => {
  await harness.start();
  const db = await harness.db();
  store = new MongoCommitStore(db.collection('commits'), db.collection('sessions'));
}, 600_000);
afterAll(() => harness.stop());

/** Stores commits as a replica does that dies before it comes to their effects. */
async function storeOnly(...batches: Command[][]): Promise<CommitDocument[]> {
  count += 1;
  let tip = { head: emptyHead(`${count}`.padStart(32, 'a')), hash: '' };
  const stored: CommitDocument[] = [];
  for (const commands of batches) {
    const { document } = fold(tip, commands.map(hashed), (Date.now() - 5_000) * 1_000);
    if (!document) throw new Error('document expected');
    expect(await store.insert(document)).toBe('inserted');
    tip = tipOf(document);
    stored.push(document);
  }
  return stored;
}

const create = createCommand({ tenantId: 'default', owner: harness.owner.principal, context: { model: 'm' } });

async function until(condition: () => Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 100));
}

const isMarked = async ({ sessionId, c }: CommitDocument): Promise<boolean> =>
  (await store.readNumber(sessionId, c))?.effectsDueAt !== null;

describe('the janitor', () => {
  it('puts a run into the queue whose acceptance was stored by a replica that died', async () => {
    const [, accepted] = await storeOnly([create], [acceptCommand('lost', { pool: harness.pool })]);
    const runner = new ScriptedRunner(harness.runners, 'runner', harness.pool);
    const { sessionId } = accepted as CommitDocument;
    expect(await runner.assignOf(sessionId)).toMatchObject({ sessionId, epoch: 2 });
    await until(async () => !(await isMarked(accepted as CommitDocument)));
    const rows = (await harness.db()).collection<{ _id: string; c: number }>('sessions');
    expect(await rows.findOne({ _id: sessionId })).toMatchObject({ hasRun: true, isRunning: true });
    runner.detach();
  });

  it('is not waited for by who repeats the acceptance: its run is queued at once', async () => {
    const sessionId = await harness.createSession();
    const request = sessionsPb.AcceptRunRequest.fromPartial({ sessionId, text: 'again', idempotencyKey: 'k' });
    const accept = () => harness.sessions.acceptRun(request, { principal: harness.owner });
    const { runId } = await accept();
    // As a replica leaves it that dies between the commit and its effects; the mark is not due for an hour.
    const db = await harness.db();
    const runs = db.collection<{ _id: string }>('runs');
    await until(async () => (await runs.findOne({ _id: runId })) !== null);
    await runs.deleteOne({ _id: runId });
    const commits = db.collection<{ _id: string }>('commits');
    const due = { $set: { effectsDueAt: Date.now() + 3_600_000 } };
    await commits.updateOne({ _id: `${sessionId}.0000000002` }, due);
    expect(await accept()).toMatchObject({ runId, replayed: true });
    await until(async () => (await runs.findOne({ _id: runId })) !== null);
  });

  it('repairs one session although a hundred others wait for a service that is down', async () => {
    harness.isExecutorUp = false;
    const pool = 'nobody';
    const claim = (runId: string): Command => ({ kind: 'claim', commitId: 'claim', runId, epoch: 1, owner: 'x' });
    for (let i = 0; i < 120; i++) {
      const sessionId = `${count + 1}`.padStart(32, 'a');
      await storeOnly(
        [create, acceptCommand('question', { pool }), claim(`${sessionId}:r1`)],
        [{ kind: 'cancel', commitId: 'cancel' }],
      );
    }
    const [made] = await storeOnly([create]);
    await until(async () => !(await isMarked(made as CommitDocument)));
    harness.isExecutorUp = true;
    const fenced = harness.fences.length;
    await until(async () => harness.fences.length >= fenced + 120);
  }, 180_000);
});
