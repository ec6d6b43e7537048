import { randomBytes } from 'node:crypto';
import { InvalidArgumentError } from '@margay/errors';
import { parseConfig, type Logger } from '@margay/platform';
import { parseBackup, parseRestore, runBackup, runRestore, type BackupContext } from './backup/commands';
import { bootstrap, parseBootstrap } from './bootstrap/command';
import { check, parseCheck } from './check';
import { BootstrapConfig, CheckConfig, DoctorConfig, PrepareStoreConfig } from './config';
import { doctor, examine, parseDoctor } from './doctor/doctor';
import { parseKeys, runKeys } from './keys/command';
import { parsePrepareStore, prepareStore } from './prepare-store';
import { openSandboxPods, parseReleaseSandboxes, releaseSandboxes } from './release-sandboxes';
import { parseSecretsCommand, rotateKek } from './secrets-command';
import { parseSupportBundle, writeSupportBundle } from './support-bundle/command';
import { VERSION } from './version';

const MIGRATE_USAGE = `Usage: margay.cjs migrate
Prepares the store of MARGAY_MONGODB_URL and MARGAY_MONGODB_DATABASE for this version, before any process of it starts.`;

export interface CommandContext {
  environment: NodeJS.ProcessEnv;
  logger: Logger;
  /** For answers; log lines go elsewhere. */
  write: (line: string) => void;
}

/** @returns the exit code where it is not 0 */
type Command = (argv: readonly string[], context: CommandContext) => Promise<number | void>;

/** Commands that see to an installation; each throws where it fails. */
const COMMANDS: Readonly<Record<string, Command>> = {
  backup: async (argv, context) => {
    const command = parseBackup(argv);
    return runBackup(command, await backupContext(context));
  },
  bootstrap: async (argv, { environment, logger }) =>
    bootstrap(parseBootstrap(argv, parseConfig(BootstrapConfig, environment).MARGAY_CELL), logger),
  check: async (argv, { environment, write }) =>
    check({ url: parseCheck(argv), apiKey: parseConfig(CheckConfig, environment).MARGAY_CHECK_KEY, write }),
  doctor: async (argv, { environment, logger, write }) => {
    const progress = (line: string) => logger.info({ line }, 'the doctor looks');
    return doctor(parseDoctor(argv), { config: parseConfig(DoctorConfig, environment), write, progress });
  },
  keys: async (argv, { environment, logger, write }) => {
    const command = parseKeys(argv);
    const count = async () => (await import('@margay/tool-executor')).sandboxesByKey(environment, logger);
    return runKeys(command, { write, sandboxesByKey: environment['MARGAY_MONGODB_URL'] ? count : undefined });
  },
  migrate: async (argv, { environment, logger }) => {
    if (argv.length > 0) throw new InvalidArgumentError('usage', MIGRATE_USAGE);
    const { OperatorStore } = await import('@margay/session');
    const store = await OperatorStore.open(environment, logger);
    return store.migrate(VERSION, randomBytes(8).toString('hex')).finally(() => store.close());
  },
  'prepare-store': async (argv, { environment, logger }) => {
    const replicaSet = parsePrepareStore(argv);
    return prepareStore({ url: parseConfig(PrepareStoreConfig, environment).MARGAY_MONGODB_URL, replicaSet, logger });
  },
  'release-sandboxes': async (argv, { logger }) => {
    const { namespace, install } = parseReleaseSandboxes(argv);
    return releaseSandboxes({ pods: await openSandboxPods(namespace, install), logger });
  },
  restore: async (argv, context) => {
    const command = parseRestore(argv);
    return runRestore(command, await backupContext(context));
  },
  secrets: async (argv, { environment, logger, write }) => {
    parseSecretsCommand(argv);
    const { OperatorStore } = await import('@margay/session');
    return rotateKek({ environment, open: () => OperatorStore.open(environment, logger), write });
  },
  'support-bundle': async (argv, { environment, logger, write }) => {
    const command = parseSupportBundle(argv);
    const config = parseConfig(DoctorConfig, environment);
    const silent = () => undefined;
    await writeSupportBundle(command, {
      version: VERSION,
      environment,
      write,
      examine: () => examine({ config, write: silent, progress: silent }, { isQuick: true, isCluster: false }),
      async describeStore() {
        const { OperatorStore } = await import('@margay/session');
        const store = await OperatorStore.open(environment, logger);
        return store.describe().finally(() => store.close());
      },
    });
  },
};

/** Loaded when asked for: the store's driver is heavy. */
async function backupContext({ environment, logger, write }: CommandContext): Promise<BackupContext> {
  const { checkBackup, findManifest, OperatorStore } = await import('@margay/session');
  const open = () => OperatorStore.open(environment, logger);
  return { open, checkBackup, findManifest, write, now: () => new Date() };
}

export function findCommand([name]: readonly string[]): Command | undefined {
  return name !== undefined && Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
}
