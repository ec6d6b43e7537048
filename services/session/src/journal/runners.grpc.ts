import type { runnersPb } from '@margay/contracts';
import { FailedPreconditionError, InvalidArgumentError, PermissionDeniedError } from '@margay/errors';
import {
  runWithTraceparent,
  traceparentOf,
  type CallContext,
  type GrpcHandlers,
  type Logger,
  type NatsBus,
} from '@margay/platform';
import type { SessionLog } from '../commits/session-log';
import { AttachedRunner } from '../dispatch/attached-runner';
import type { Dispatcher } from '../dispatch/dispatcher';
import type { RunGrants } from '../dispatch/run-grants';
import type { RunnerRepository } from '../dispatch/runner.repository';
import type { RunnerWatch } from '../dispatch/runner-watch';
import type { JournalRegistry } from './journal-registry';
import { RunJournal } from './run-journal';

export interface RunnersPorts {
  log: SessionLog;
  bus: NatsBus;
  dispatcher: Dispatcher;
  watch: RunnerWatch;
  runners: RunnerRepository;
  grants: RunGrants;
  journals: JournalRegistry;
  logger: Logger;
}

type Definition = typeof runnersPb.RunnersDefinition;
type AttachStream = Parameters<GrpcHandlers<Definition>['attach']>[0];
type JournalStream = Parameters<GrpcHandlers<Definition>['journal']>[0];

/** How long a runner whose `Attach` closed may take to attach elsewhere. */
const REATTACH_MS = 2_000;
const RUNNER_PRINCIPAL = 'system:agent-runner';

export function runnersHandlers(ports: RunnersPorts): GrpcHandlers<Definition> {
  return {
    attach: (stream, context) => attach(ports, stream, context),
    journal: (stream, context) => journal(ports, stream, context),
  };
}

function attach(ports: RunnersPorts, stream: AttachStream, context: CallContext): void {
  if (context.principal().principal !== RUNNER_PRINCIPAL)
    throw new PermissionDeniedError('not_a_runner', 'only agent-runner may attach');
  let attached: Promise<AttachedRunner> | undefined;
  // Messages are handled one at a time, in their order.
  let handled: Promise<void> = Promise.resolve();
  let missed: Set<string> = new Set();
  stream.on('data', ({ message }: runnersPb.AttachRequest) => {
    if (message?.$case === 'hello') {
      attached ??= onHello(ports, stream, message.value);
      attached.catch((error: unknown) => context.fail(error));
      return;
    }
    if (!attached) return context.fail(new InvalidArgumentError('hello_missing', 'the first message must be hello'));
    const runner = attached;
    handled = handled
      .then(async () => {
        if (message?.$case === 'heartbeat') missed = await onHeartbeat(ports, await runner, message.value, missed);
        if (message?.$case === 'drained') await onDrained(ports, await runner);
      })
      .catch((error: unknown) => ports.logger.warn({ err: error }, 'a runner message could not be handled'));
  });
  const onClose = (): void => void attached?.then((runner) => onDetached(ports, runner)).catch(() => undefined);
  stream.on('end', () => void handled.then(() => stream.end()));
  context.signal.addEventListener('abort', onClose, { once: true });
  stream.on('close', onClose);
}

async function onHello(ports: RunnersPorts, stream: AttachStream, hello: runnersPb.Hello): Promise<AttachedRunner> {
  const generation = await ports.runners.attach(hello.instance, hello.pool);
  const runner = new AttachedRunner(hello.instance, hello.pool, hello.slots, generation, (message) => {
    if (!stream.destroyed) stream.write(message);
  });
  ports.dispatcher.attach(runner);
  ports.logger.info({ runner: hello.instance, pool: hello.pool, slots: hello.slots }, 'a runner attached');
  return runner;
}

async function onHeartbeat(
  ports: RunnersPorts,
  runner: AttachedRunner,
  heartbeat: runnersPb.Heartbeat,
  missedBefore: ReadonlySet<string>,
): Promise<Set<string>> {
  runner.onHeartbeat(heartbeat.freeSlots, heartbeat.runs);
  await ports.runners.beat(runner.instance);
  const missed = await ports.watch.compare(runner.instance, heartbeat.runs, missedBefore);
  const grants = await renewedGrants(ports, runner, heartbeat.runs);
  runner.acknowledge({ beat: heartbeat.beat, grants });
  void ports.dispatcher.dispatch(runner.pool);
  return missed;
}

/** New grants for the runs that still stand; the others are revoked. */
async function renewedGrants(
  ports: RunnersPorts,
  runner: AttachedRunner,
  runs: runnersPb.HeldRun[],
): Promise<runnersPb.RenewedGrant[]> {
  const grants: runnersPb.RenewedGrant[] = [];
  for (const held of runs) {
    const head = await ports.log.recentHead(held.sessionId);
    const { run } = head;
    if (run?.id === held.runId && head.epoch === held.epoch) {
      grants.push({ runId: run.id, epoch: held.epoch, grant: await ports.grants.sign(head, run, held.epoch) });
    } else if (head.epoch > held.epoch) {
      runner.revoke(held, 'the run has moved on');
    }
  }
  return grants;
}

async function onDrained(ports: RunnersPorts, runner: AttachedRunner): Promise<void> {
  runner.isDrained = true;
  ports.dispatcher.detach(runner);
  // What it did not hand over itself goes back now.
  await ports.watch.takeOverAll(runner.instance, 'drain', runner.held);
}

async function onDetached(ports: RunnersPorts, runner: AttachedRunner): Promise<void> {
  if (runner.isDrained || !ports.dispatcher.detach(runner)) return;
  const closedMs = performance.now();
  await new Promise((resolve) => setTimeout(resolve, REATTACH_MS).unref());
  if (!(await ports.runners.markLost(runner.instance, runner.generation))) return;
  ports.logger.warn({ runner: runner.instance }, 'a runner is lost');
  await ports.watch.takeOverAll(runner.instance, 'crash', runner.held, closedMs);
}

/** Each commit belongs to the trace of its run, whatever the stream's listeners run in. */
function commit(opened: RunJournal, value: runnersPb.JournalCommit, traceparent: string | undefined): void {
  runWithTraceparent(traceparent, () => opened.commit(value));
}

function journal(ports: RunnersPorts, stream: JournalStream, context: CallContext): void {
  const grant = context.grant();
  const traceparent = traceparentOf(context);
  let opened: RunJournal | undefined;
  const respond = (message: NonNullable<runnersPb.JournalResponse['message']>): void => {
    if (!stream.destroyed) stream.write({ message });
  };
  stream.on('data', ({ message }: runnersPb.JournalRequest) => {
    try {
      if (message?.$case === 'open') {
        const { sessionId, runId, epoch, haveC } = message.value;
        if (grant.sessionId !== sessionId || grant.runId !== runId || grant.epoch !== epoch)
          throw new PermissionDeniedError('grant_mismatch', `the grant is not for run ${runId} at epoch ${epoch}`);
        opened = new RunJournal(ports, { sessionId, runId, epoch }, respond, (error) => context.fail(error));
        ports.journals.add(opened);
        opened.open(haveC, grant.tenantId).catch((error: unknown) => context.fail(error));
        return;
      }
      if (!opened) throw new FailedPreconditionError('open_missing', 'the first message must be open');
      if (message?.$case === 'commit') commit(opened, message.value, traceparent);
      if (message?.$case === 'delta') opened.delta(message.value);
    } catch (error) {
      context.fail(error);
    }
  });
  const close = (): void => {
    if (!opened) return;
    ports.journals.remove(opened);
    opened.close();
  };
  stream.on('end', () => {
    close();
    stream.end();
  });
  stream.on('close', close);
  context.signal.addEventListener('abort', close, { once: true });
}
