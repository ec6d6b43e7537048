import { AbortedError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import { ConflictError, type SecretStore } from './secret-store';
import type { Completion } from './secrets';

const ATTEMPTS = 5;

/**
 * Writes what is due in the named secrets. Safe to repeat, and beside itself.
 * @throws AbortedError `secret_contended`
 */
export async function completeSecrets(
  store: SecretStore,
  wanted: ReadonlyMap<string, Completion>,
  logger: Logger,
): Promise<void> {
  for (const [name, completion] of wanted) {
    const keys = await complete(store, name, completion);
    logger.info({ secret: name, keys }, keys.length > 0 ? 'keys of a secret made' : 'secret is complete');
  }
}

async function complete(store: SecretStore, name: string, completion: Completion): Promise<string[]> {
  for (let attempt = 1; ; attempt += 1) {
    const existing = await store.find(name);
    const missing = completion(existing?.data ?? {});
    const keys = Object.keys(missing);
    if (keys.length === 0) return keys;
    try {
      await (existing ? store.patch(name, missing, existing.version) : store.create(name, missing));
      return keys;
    } catch (error) {
      if (!(error instanceof ConflictError)) throw error;
      if (attempt < ATTEMPTS) continue;
      const message = `The secret ${name} is written by others all the time; run bootstrap again.`;
      throw new AbortedError('secret_contended', message, { cause: error });
    }
  }
}
