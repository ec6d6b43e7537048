import { once } from 'node:events';
import type { runnersPb } from '@margay/contracts';
import { FailedPreconditionError, PermissionDeniedError } from '@margay/errors';
import { runWithTraceparent, traceparentOf, type CallContext, type GrpcHandlers } from '@margay/platform';
import { RunnerAttachment, type AttachmentPorts } from '../dispatch/runner-attachment';
import type { AttachmentsService } from '../attachments/attachments.service';
import type { JournalRegistry } from './journal-registry';
import { RunJournal, type JournalStreamPort, type RunJournalPorts } from './run-journal';

export interface RunnersPorts extends AttachmentPorts, RunJournalPorts {
  journals: JournalRegistry;
  attachments: Pick<AttachmentsService, 'read'>;
}

type Definition = typeof runnersPb.RunnersDefinition;
type AttachStream = Parameters<GrpcHandlers<Definition>['attach']>[0];
type JournalStream = Parameters<GrpcHandlers<Definition>['journal']>[0];

const RUNNER_PRINCIPAL = 'system:agent-runner';

export function runnersHandlers(ports: RunnersPorts): GrpcHandlers<Definition> {
  return {
    attach: (stream, context) => attach(ports, stream, context),
    journal: (stream, context) => journal(ports, stream, context),
    readAttachment: async (request, context) => ({ content: await ports.attachments.read(context.grant(), request) }),
  };
}

function attach(ports: RunnersPorts, stream: AttachStream, context: CallContext): void {
  if (context.principal().principal !== RUNNER_PRINCIPAL)
    throw new PermissionDeniedError('not_a_runner', 'only agent-runner may attach');
  const attachment = new RunnerAttachment(
    ports,
    {
      send: (message) => void (isWritable(stream) && stream.write(message)),
      end: () => void (isWritable(stream) && stream.end()),
    },
    (error) => context.fail(error),
  );
  stream.on('data', (message: runnersPb.AttachRequest) => attachment.receive(message));
  stream.on('end', () => void attachment.end().then(() => attachment.close()));
  stream.on('close', () => attachment.close());
  context.signal.addEventListener('abort', () => attachment.close(), { once: true });
}

function journal(ports: RunnersPorts, stream: JournalStream, context: CallContext): void {
  const port = journalPort(stream, context);
  const traceparent = traceparentOf(context);
  let opened: RunJournal | undefined;
  const close = (): void => {
    if (!opened) return;
    ports.journals.remove(opened);
    opened.close();
  };
  stream.on('data', ({ message }: runnersPb.JournalRequest) => {
    try {
      if (message?.$case === 'open') {
        if (opened) throw new FailedPreconditionError('open_already', 'this stream is open');
        opened = openJournal(ports, port, context, message.value);
      }
      if (!opened) throw new FailedPreconditionError('open_missing', 'the first message must be open');
      if (message?.$case === 'commit') commit(opened, message.value, traceparent);
      if (message?.$case === 'delta') opened.delta(message.value);
    } catch (error) {
      close();
      context.fail(error);
    }
  });
  stream.on('end', () => {
    close();
    port.end();
  });
  stream.on('close', close);
  context.signal.addEventListener('abort', close, { once: true });
}

function openJournal(
  ports: RunnersPorts,
  port: JournalStreamPort,
  context: CallContext,
  { sessionId, runId, epoch, haveC }: runnersPb.JournalOpen,
): RunJournal {
  const grant = context.grant();
  if (grant.sessionId !== sessionId || grant.runId !== runId || grant.epoch !== epoch)
    throw new PermissionDeniedError('grant_mismatch', `the grant is not for run ${runId} at epoch ${epoch}`);
  const opened = new RunJournal(ports, { sessionId, runId, epoch }, port);
  ports.journals.add(opened);
  opened.open(haveC, grant.tenantId).catch((error: unknown) => {
    ports.journals.remove(opened);
    opened.close();
    context.fail(error);
  });
  return opened;
}

/** Each commit belongs to the trace of its run, whatever the stream's listeners run in. */
function commit(opened: RunJournal, value: runnersPb.JournalCommit, traceparent: string | undefined): void {
  runWithTraceparent(traceparent, () => opened.commit(value));
}

function journalPort(stream: JournalStream, context: CallContext): JournalStreamPort {
  return {
    async send(message) {
      if (!isWritable(stream) || stream.write({ message })) return;
      // A stream that is cut has nobody left to wait for.
      await once(stream, 'drain', { signal: context.signal }).catch(() => undefined);
    },
    breakOff: (error) => context.fail(error),
    end: () => void (isWritable(stream) && stream.end()),
  };
}

function isWritable(stream: AttachStream | JournalStream): boolean {
  return !stream.destroyed && !stream.writableEnded;
}
