import { GrpcInbox, GrpcJournal } from '@margay/agent-runner';
import type { runnersPb } from '@margay/contracts';
import { createLogger } from '@margay/platform';
import { journalContract, type JournalHarness } from '@margay/testing';
import { SessionService } from './session-service';

const logger = createLogger({ level: 'off' });
const service = new SessionService();
const journals: GrpcJournal[] = [];

beforeAll(() => service.start(), 600_000);
afterAll(() => service.stop());
afterEach(() => {
  for (const journal of journals.splice(0)) journal.close();
});

function own({ sessionId, runId, epoch, grant }: runnersPb.Assign): { journal: GrpcJournal; inbox: GrpcInbox } {
  const inbox = new GrpcInbox();
  const run = { sessionId, runId, epoch };
  const journal = new GrpcJournal({ client: service.runners, run, grant: () => grant, inbox, logger });
  journals.push(journal);
  return { journal, inbox };
}

async function harness(): Promise<JournalHarness> {
  const assign = await service.newRun();
  const { sessionId } = assign;
  const from = service.deltas.length;
  return {
    ...own(assign),
    steer: (text) => service.steer(sessionId, text),
    interrupt: () => service.interrupt(sessionId),
    cancel: () => service.cancel(sessionId),
    takeOver: async () => {
      service.changeRunner();
      return own(await service.assignOf(sessionId)).journal;
    },
    events: () => service.events(sessionId),
    deltas: () => service.deltas.slice(from),
    close: () => Promise.resolve(),
  };
}

describe('a journal over a stream of the session service', () => {
  it.each(journalContract(harness))('$title', ({ check }) => check(), 15_000);
});
