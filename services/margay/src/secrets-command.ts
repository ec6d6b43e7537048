import { InvalidArgumentError } from '@margay/errors';
import type { OperatorStore, RotatedKek } from '@margay/session';

const USAGE = `Usage: margay.cjs secrets rotate-kek
Wraps the data keys of all tenants with the active key of MARGAY_KEK_FILE, in the store of MARGAY_MONGODB_URL and
MARGAY_MONGODB_DATABASE. It may be repeated.`;

export interface SecretsCommandContext {
  environment: NodeJS.ProcessEnv;
  open: () => Promise<Pick<OperatorStore, 'rotateKek' | 'close'>>;
  write: (line: string) => void;
}

/** @throws InvalidArgumentError `usage` */
export function parseSecretsCommand(argv: readonly string[]): void {
  if (argv.length !== 1 || argv[0] !== 'rotate-kek') throw new InvalidArgumentError('usage', USAGE);
}

/** @returns the exit code: 1 while data keys need other key-encryption keys than the active one */
export async function rotateKek({ environment, open, write }: SecretsCommandContext): Promise<number> {
  const store = await open();
  try {
    const rotated = await store.rotateKek(environment);
    for (const line of linesOf(rotated)) write(line);
    return rotated.left.size > 0 ? 1 : 0;
  } finally {
    await store.close();
  }
}

function linesOf({ active, rewrapped, left }: RotatedKek): string[] {
  const done = `${rewrapped} data keys wrapped anew with ${active}`;
  if (left.size === 0) return [done, `no data key needs another one than ${active}`];
  const others = [...left].map(([kid, count]) => `${count} data keys still need ${kid}: run this again`);
  return [done, ...others];
}
