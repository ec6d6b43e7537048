import { parseArgs } from 'node:util';
import { AbortedError, FailedPreconditionError, InvalidArgumentError } from '@margay/errors';
import { FolderSecrets } from '../bootstrap/folder-secrets';
import { KubernetesSecrets } from '../bootstrap/kubernetes-secrets';
import { ConflictError, type SecretStore } from '../bootstrap/secret-store';
import { nextStep, type RotationOptions, type RotationStep } from './rotation';

const USAGE = `Usage: margay.cjs keys rotate (--namespace NAMESPACE | --out FOLDER) --keys SECRET
         [--step-seconds 120] [--sandboxes-checked]
       margay.cjs keys sandboxes
rotate: the next of four steps by which all services get new keys to sign with; run it again until it says that it is
finished. Before the old keys go it looks for sandboxes that need them, in the store of MARGAY_MONGODB_URL; where that
is not to be reached from here, run \`keys sandboxes\` beside tool-executor first, and say --sandboxes-checked.
sandboxes: how many sandboxes need which key.`;

export type KeysCommand =
  | { kind: 'sandboxes' }
  | {
      kind: 'rotate';
      target: { namespace: string } | { folder: string };
      secret: string;
      stepMs: number;
      isChecked: boolean;
    };

export interface KeysContext {
  write: (line: string) => void;
  /** Undefined where no store is named. */
  sandboxesByKey: (() => Promise<Map<string, number>>) | undefined;
  now?: () => number;
}

/** @throws InvalidArgumentError `usage` */
export function parseKeys([verb, ...rest]: readonly string[]): KeysCommand {
  if (verb === 'sandboxes' && rest.length === 0) return { kind: 'sandboxes' };
  if (verb !== 'rotate') throw new InvalidArgumentError('usage', USAGE);
  const { namespace, out, keys, 'step-seconds': seconds = '120', 'sandboxes-checked': isChecked = false } = optionsOf(rest); // prettier-ignore
  const stepMs = Number(seconds) * 1_000;
  if ((namespace === undefined) === (out === undefined) || keys === undefined || !(stepMs >= 0))
    throw new InvalidArgumentError('usage', USAGE);
  const target = out === undefined ? { namespace: namespace as string } : { folder: out };
  return { kind: 'rotate', target, secret: keys, stepMs, isChecked };
}

function optionsOf(args: readonly string[]) {
  const text = { type: 'string' } as const;
  const options = { namespace: text, out: text, keys: text, 'step-seconds': text, 'sandboxes-checked': { type: 'boolean' } } as const; // prettier-ignore
  try {
    return parseArgs({ args: [...args], options }).values;
  } catch (error) {
    throw new InvalidArgumentError('usage', `${(error as Error).message}\n${USAGE}`);
  }
}

/** @returns the exit code: 1 while there are steps to come */
export async function runKeys(command: KeysCommand, context: KeysContext): Promise<number> {
  const { write, sandboxesByKey, now = Date.now } = context;
  if (command.kind === 'sandboxes') {
    const byKey = await (sandboxesByKey ?? noStore)();
    write(JSON.stringify(Object.fromEntries(byKey)));
    return 0;
  }
  const { target, secret, stepMs, isChecked } = command;
  const store = 'folder' in target ? new FolderSecrets(target.folder) : await KubernetesSecrets.open({ ...target, instance: 'margay' }); // prettier-ignore
  const unchecked = isChecked ? () => Promise.resolve(new Map<string, number>()) : noStore;
  const step = await take(store, secret, { now: now(), stepMs, sandboxesByKey: sandboxesByKey ?? unchecked });
  write(`${step.done}; ${step.isFinished ? 'the rotation is finished' : `run this again in ${stepMs / 1_000} s`}`);
  return step.isFinished ? 0 : 1;
}

async function take(store: SecretStore, secret: string, options: RotationOptions): Promise<RotationStep> {
  const existing = await store.find(secret);
  const step = await nextStep(existing?.data ?? {}, options);
  try {
    await store.patch(secret, step.data, existing?.version ?? '');
    return step;
  } catch (cause) {
    if (!(cause instanceof ConflictError)) throw cause;
    throw new AbortedError('secret_contended', `The secret ${secret} was written by somebody else; run this again.`, { cause }); // prettier-ignore
  }
}

function noStore(): never {
  const message = 'Sandboxes may need the old key: name the store (MARGAY_MONGODB_URL), or look by `keys sandboxes` beside tool-executor and say --sandboxes-checked.'; // prettier-ignore
  throw new FailedPreconditionError('sandboxes_unknown', message);
}
