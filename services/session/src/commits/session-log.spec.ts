import { UnavailableError, type MargayError } from '@margay/errors';
import { MemoryBlobStore, MemoryCommitStore } from '@margay/log';
import { createLogger } from '@margay/platform';
import { createCommand } from '@margay/testing';
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
