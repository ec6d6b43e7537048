import { parseArgs } from 'node:util';
import { InvalidArgumentError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import { completeSecrets } from './complete-secrets';
import { FolderSecrets } from './folder-secrets';
import { KubernetesSecrets } from './kubernetes-secrets';
import type { SecretStore } from './secret-store';
import { missingFirstKey, missingKek, missingPassword, missingServiceKeys, type Completion } from './secrets';

const USAGE = `Usage: margay.cjs bootstrap (--namespace NAMESPACE [--instance NAME] | --out FOLDER)
         [--keys SECRET] [--kek SECRET] [--first-key SECRET] [--nats SECRET]
Makes what is missing in the named secrets and changes nothing that is there.`;

export interface BootstrapCommand {
  target: { namespace: string; instance: string } | { folder: string };
  /** By name of the secret. */
  secrets: Map<string, Completion>;
}

/** @throws InvalidArgumentError `usage` */
export function parseBootstrap(argv: readonly string[], cell: string): BootstrapCommand {
  const { namespace, instance = 'margay', out, ...named } = optionsOf(argv);
  if ((namespace === undefined) === (out === undefined)) throw usage('name either a namespace or a folder');
  const makers = {
    keys: missingServiceKeys,
    kek: missingKek,
    'first-key': missingFirstKey(cell),
    nats: missingPassword,
  };
  const secrets = new Map<string, Completion>();
  for (const [option, completion] of Object.entries(makers)) {
    const secret = named[option as keyof typeof makers];
    if (secret !== undefined) secrets.set(secret, completion);
  }
  if (secrets.size === 0) throw usage('name at least one secret');
  return { target: out === undefined ? { namespace: namespace as string, instance } : { folder: out }, secrets };
}

function optionsOf(argv: readonly string[]) {
  const text = { type: 'string' } as const;
  try {
    const options = {
      namespace: text,
      instance: text,
      out: text,
      keys: text,
      kek: text,
      'first-key': text,
      nats: text,
    };
    return parseArgs({ args: [...argv], options }).values;
  } catch (error) {
    throw usage((error as Error).message);
  }
}

export async function bootstrap({ target, secrets }: BootstrapCommand, logger: Logger): Promise<void> {
  await completeSecrets(await storeOf(target), secrets, logger);
}

async function storeOf(target: BootstrapCommand['target']): Promise<SecretStore> {
  return 'folder' in target ? new FolderSecrets(target.folder) : KubernetesSecrets.open(target);
}

const usage = (problem: string) => new InvalidArgumentError('usage', `${problem}\n${USAGE}`);
