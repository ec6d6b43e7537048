import { armFaultPoints } from '@margay/platform/faults';
import { readConfig } from './config';
import { startSandboxd } from './sandboxd';

const STOP_GRACE_MS = 1_000;

/** One line on stdout tells the driver that the socket is open; faults go to stderr, which it keeps in a file. */
async function main(): Promise<void> {
  // A driver trying out whether the daemon can be started at all.
  if (process.argv.includes('--probe')) return void process.stdout.write('ready\n');
  // Sockets and files of the sandbox are for its own user.
  process.umask(0o077);
  const config = readConfig();
  armFaultPoints(config.MARGAY_FAULT_POINTS, {
    warn: (fields, sentence) => void process.stderr.write(`${sentence} ${JSON.stringify(fields)}\n`),
  });
  const daemon = await startSandboxd(config);
  process.umask(0o022);
  const stop = (): void => void daemon.drain(config.MARGAY_SANDBOX_DRAIN_MS).then(() => daemon.close(STOP_GRACE_MS));
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, stop);
  process.stdout.on('error', () => undefined); // the driver may be gone
  process.stdout.write('ready\n');
  await daemon.ended;
  process.exit(0);
}

main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  process.exit(1);
});
