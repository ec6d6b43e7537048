import {
  KeyRing,
  LOG_LEVELS,
  TlsIdentity,
  armFaultPoints,
  createLogger,
  parseConfig,
  startTelemetry,
} from '@margay/platform';
import { Registry } from 'prom-client';
import { z } from 'zod';
import { AgentRunnerConfig } from '../config';
import { HostedRun } from '../runs/hosted-run';
import type { DrivenRun } from '../runs/run-end';
import { runnerPorts } from '../runner-ports';
import { endAboveMemory, offerToBeKilledFirst } from './memory-watch';
import { BEAT_MS, type ToChild } from './messages';
import { endWithParent, forkedChannel, type ParentChannel } from './parent-channel';

const AloneConfig = AgentRunnerConfig.extend({
  MARGAY_LOG_LEVEL: z.enum(LOG_LEVELS).default('info'),
  MARGAY_FAULT_POINTS: z.string().optional(),
  MARGAY_TLS_DIR: z.string().optional(),
});

/** Drives the one run that the parent of this process names, and ends the process when it has left. */
export async function runAlone(environment: NodeJS.ProcessEnv): Promise<never> {
  endWithParent();
  const config = parseConfig(AloneConfig, environment);
  const logger = createLogger({ service: 'agent-runner', level: config.MARGAY_LOG_LEVEL });
  armFaultPoints(config.MARGAY_FAULT_POINTS, logger);
  await offerToBeKilledFirst(logger);
  endAboveMemory(config.MARGAY_ISOLATED_HEAP_MB, logger);
  const telemetry = await startTelemetry({ service: 'margay-agent-runner', environment });
  const { MARGAY_TLS_DIR: tlsFolder } = config;
  const tls = tlsFolder === undefined ? undefined : await TlsIdentity.open(tlsFolder, logger);
  tls?.watch();
  const keys = await KeyRing.load(config.MARGAY_KEYS_DIR, 'agent-runner', { tls });
  const { ports, close } = runnerPorts({ config, keys, logger, registry: new Registry() });
  const makeRun = ({ assign, failures, instance }: ToChild & { kind: 'assign' }): HostedRun => {
    const { sessionId, runId } = assign;
    return new HostedRun({ assign, failures, logger: logger.child({ instance, sessionId, runId }) }, ports);
  };
  await serveRun(forkedChannel(logger), makeRun);
  close();
  await telemetry.close();
  process.exit(0);
}

/** From the assignment to the word that the run has left. */
export async function serveRun(
  channel: ParentChannel,
  makeRun: (assignment: ToChild & { kind: 'assign' }) => DrivenRun,
): Promise<void> {
  let run: DrivenRun | undefined;
  const beats = setInterval(() => void channel.send({ kind: 'beat' }), BEAT_MS);
  try {
    const assigned = await new Promise<DrivenRun>((resolve) => {
      channel.onMessage((message) => {
        // What follows the assignment is about that run.
        if (message.kind === 'assign') resolve((run ??= makeRun(message)));
        if (message.kind === 'grant') run?.renew(message.grant);
        if (message.kind === 'stop') run?.stop(message.cause);
      });
    });
    await channel.send({ kind: 'ready' });
    const end = await assigned.drive();
    await channel.send({ kind: 'ended', end });
  } finally {
    clearInterval(beats);
  }
}
