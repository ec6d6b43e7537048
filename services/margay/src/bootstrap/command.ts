import { parseArgs } from 'node:util';
import { InvalidArgumentError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import { dueLeaf, missingAuthority } from './certificates';
import { completeSecrets } from './complete-secrets';
import { FolderSecrets } from './folder-secrets';
import { KubernetesSecrets } from './kubernetes-secrets';
import type { SecretStore } from './secret-store';
import { missingEgressAuthority } from './egress-authority';
import { missingFirstKey, missingKek, missingPassword, missingServiceKeys, type Completion } from './secrets';

const USAGE = `Usage: margay.cjs bootstrap (--namespace NAMESPACE [--instance NAME] | --out FOLDER)
         [--keys SECRET] [--kek SECRET] [--first-key SECRET] [--nats SECRET] [--egress-ca SECRET]
         [--tls PREFIX --peer NAME=SERVICE,SERVICE …]
Makes what is missing in the named secrets and changes nothing that is there. With --tls: the authority PREFIX-ca, and
a certificate PREFIX-NAME for each process of these services, made anew when it is good for less than 60 days.`;

export interface BootstrapCommand {
  target: { namespace: string; instance: string } | { folder: string };
  /** By name of the secret. */
  secrets: Map<string, Completion>;
  tls?: TlsSecrets;
}

export interface TlsSecrets {
  /** Of the names of all secrets. */
  prefix: string;
  /** Services by name of the process that hosts them. */
  peers: Map<string, string[]>;
}

/** @throws InvalidArgumentError `usage` */
export function parseBootstrap(argv: readonly string[], cell: string, now = Date.now()): BootstrapCommand {
  const { namespace, instance = 'margay', out, tls: prefix, peer = [], ...named } = optionsOf(argv);
  if ((namespace === undefined) === (out === undefined)) throw usage('name either a namespace or a folder');
  const makers = {
    keys: missingServiceKeys,
    kek: missingKek,
    'first-key': missingFirstKey(cell),
    nats: missingPassword,
    'egress-ca': missingEgressAuthority(now),
  };
  const secrets = new Map<string, Completion>();
  for (const [option, completion] of Object.entries(makers)) {
    const secret = named[option as keyof typeof makers];
    if (secret !== undefined) secrets.set(secret, completion);
  }
  const tls = tlsOf(prefix, peer);
  if (secrets.size === 0 && !tls) throw usage('name at least one secret');
  const target = out === undefined ? { namespace: namespace as string, instance } : { folder: out };
  return { target, secrets, ...(tls && { tls }) };
}

function tlsOf(prefix: string | undefined, named: readonly string[]): TlsSecrets | undefined {
  if ((prefix === undefined) !== (named.length === 0)) throw usage('--tls and --peer go together');
  if (prefix === undefined) return undefined;
  const peers = new Map<string, string[]>();
  for (const peer of named) {
    const [, name, services] = /^([a-z-]+)=([a-z,-]+)$/.exec(peer) ?? [];
    if (name === undefined || services === undefined) throw usage(`'${peer}' is not of the form NAME=SERVICE,SERVICE`);
    peers.set(name, services.split(','));
  }
  return { prefix, peers };
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
      'egress-ca': text,
      tls: text,
      peer: { type: 'string', multiple: true } as const,
    };
    return parseArgs({ args: [...argv], options }).values;
  } catch (error) {
    throw usage((error as Error).message);
  }
}

export async function bootstrap(
  { target, secrets, tls }: BootstrapCommand,
  logger: Logger,
  now = Date.now(),
): Promise<void> {
  const store = await storeOf(target);
  await completeSecrets(store, secrets, logger);
  if (!tls) return;
  const name = `${tls.prefix}-ca`;
  await completeSecrets(store, new Map([[name, missingAuthority(now)]]), logger);
  const authority = (await store.find(name))?.data ?? {};
  const leaves = [...tls.peers].map(
    ([peer, services]) => [`${tls.prefix}-${peer}`, dueLeaf(authority, services, now)] as const,
  );
  await completeSecrets(store, new Map(leaves), logger);
}

async function storeOf(target: BootstrapCommand['target']): Promise<SecretStore> {
  return 'folder' in target ? new FolderSecrets(target.folder) : KubernetesSecrets.open(target);
}

const usage = (problem: string) => new InvalidArgumentError('usage', `${problem}\n${USAGE}`);
