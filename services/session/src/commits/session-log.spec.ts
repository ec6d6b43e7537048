import { UnavailableError, type MargayError } from '@margay/errors';
import { MemoryBlobStore, MemoryCommitStore, type Command, type StepCommand } from '@margay/log';
import { createLogger } from '@margay/platform';
import { acceptCommand, createCommand } from '@margay/testing';
import type { CommandMasking } from '../secrets/commit-masking';
import { SessionLog } from './session-log';

const observer = {
  inserted: () => undefined,
  conflicted: () => undefined,
  unknownOutcome: () => undefined,
  fenced: () => undefined,
};

it('stores nothing while its replica may not: its times would run ahead of everybody', async () => {
  const store = new MemoryCommitStore();
  const skew = new UnavailableError('clock_skew', 'off');
  let refusal: MargayError | undefined = skew;
  const log = new SessionLog(store, new MemoryBlobStore(), observer, createLogger({ level: 'off' }), () => refusal);
  await expect(log.submit('session', createCommand())).rejects.toBe(skew);
  expect(await store.readNumber('session', 1)).toBeUndefined();
  refusal = undefined;
  expect(await log.submit('session', createCommand())).toMatchObject({ ok: true, c: 1 });
  log.close();
});

it.each(['told', 'told '.repeat(50_000)])(
  'knows a command again that is sent again when a secret of it was written',
  async (text) => {
    let isSecret = false;
    const hidden = (json: string) => json.replaceAll('told', '[secret:it]');
    const masking: CommandMasking = {
      mask: <C extends Command>(command: C) =>
        Promise.resolve(isSecret ? (JSON.parse(hidden(JSON.stringify(command))) as C) : command),
    };
    const store = new MemoryCommitStore();
    const logger = createLogger({ level: 'off' });
    const open = () => new SessionLog(store, new MemoryBlobStore(), observer, logger, undefined, () => masking);
    const step = { kind: 'step', commitId: 'step', runId: 'session:r1', epoch: 1, events: [], records: [{ kind: 'said', text }] } as StepCommand; // prettier-ignore
    const send = async (log: SessionLog) => log.submit('session', await log.fit('session', 'tenant', step));

    const first = open();
    await first.submit('session', createCommand());
    await first.submit('session', acceptCommand('begin'));
    const { epoch, run } = first.cachedHead('session') ?? {};
    Object.assign(step, { runId: run?.id, epoch });
    await first.submit('session', {
      kind: 'claim',
      commitId: 'claim',
      runId: step.runId,
      epoch: step.epoch,
      owner: 'runner',
    });
    step.epoch = first.cachedHead('session')?.epoch ?? 0;
    const stored = await send(first);
    expect(stored).toMatchObject({ ok: true });
    isSecret = true;
    const second = open();
    expect(await send(second)).toMatchObject({ ok: true, c: stored.ok && stored.c, replayed: true });
    first.close();
    second.close();
  },
);
