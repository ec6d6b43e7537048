import path from 'node:path';
import { FailedPreconditionError, InvalidArgumentError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import type { ToolExecutorConfig } from '../config';
import type { OpenDriver } from '../driver/open-driver';
import type { Isolation } from '../driver/sandbox-driver';
import type { GrantKeys } from '../sandbox/grant-keys';
import { ArchivedInventory } from '../snapshots/archived-inventory';
import { FileArchiveStore } from '../snapshots/file-archive-store';
import { Snapshots } from '../snapshots/snapshots';
import { ProcessDriver } from './process-driver';

/** A sandbox whose executor is gone ends a while after it would have been stopped. */
const IDLE_EXIT_MARGIN_MS = 300_000;

/** The driver `process`. Throws when the machine cannot keep sandboxes apart as demanded. */
export async function openProcess(
  config: ToolExecutorConfig,
  grantKeys: GrantKeys,
  logger: Logger,
): Promise<OpenDriver> {
  const { MARGAY_SANDBOXD_ENTRY: entry } = config;
  if (entry === undefined)
    throw new InvalidArgumentError(
      'bad_environment',
      'Cannot start: the sandbox driver "process" needs MARGAY_SANDBOXD_ENTRY.',
    );
  const driver = await ProcessDriver.open({
    home: config.MARGAY_HOME,
    entry,
    wanted: config.MARGAY_SANDBOX_ISOLATION,
    get trust() {
      return grantKeys.trust;
    },
    memoryBytes: config.MARGAY_SANDBOX_MEMORY_BYTES,
    processes: config.MARGAY_SANDBOX_PROCESSES,
    egressSocket: config.MARGAY_EGRESS_LOCAL_SOCKET,
    egressCaFile: config.MARGAY_EGRESS_CA_FILE,
    faultPoints: config.MARGAY_FAULT_POINTS,
    idleExitMs: config.MARGAY_SANDBOX_IDLE_STOP_SECONDS * 1_000 + IDLE_EXIT_MARGIN_MS,
    logger,
  });
  const { isolation, warning, ledger } = driver;
  const store = new FileArchiveStore(path.join(config.MARGAY_HOME, 'archives'));
  const snapshots = new Snapshots({ store, logger });
  const inventory = new ArchivedInventory(driver.inventory, snapshots);
  if (warning !== undefined) refuseOpenDoors(config, isolation);
  return { driver, ledger, inventory, name: 'process', snapshots, warning, close: () => driver.close() };
}

/** Without a real sandbox the platform is for the person at this machine only. */
function refuseOpenDoors(config: ToolExecutorConfig, isolation: Isolation): void {
  const doors = [config.MARGAY_TOOL_EXECUTOR_LISTEN, config.MARGAY_GATEWAY_LISTEN].filter((door) => door !== undefined);
  const open = doors.find((door) => !/^(127\.\d+\.\d+\.\d+|localhost|\[::1\]):\d+$|^unix:/.test(door));
  if (open === undefined) return;
  throw new FailedPreconditionError(
    'sandbox_needs_loopback',
    `With sandbox "${isolation}" everything must listen on loopback, but ${open} does not. Use bubblewrap as root, or 127.0.0.1.`,
  );
}
