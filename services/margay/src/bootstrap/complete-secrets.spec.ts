import { createLogger } from '@margay/platform';
import { completeSecrets } from './complete-secrets';
import { ConflictError, SecretStore, type StoredSecret } from './secret-store';
import type { Completion, SecretData } from './secrets';

const logger = createLogger({ service: 'spec', level: 'off' });
const twoKeys: Completion = (existing) =>
  Object.fromEntries(['a', 'b'].filter((key) => !(key in existing)).map((key) => [key, `new ${key}`]));

class MemorySecrets extends SecretStore {
  readonly secrets = new Map<string, SecretData>();
  writes = 0;
  /** Runs before a write, once each: what somebody else does meanwhile. */
  readonly meanwhile: (() => void)[] = [];

  async find(name: string): Promise<StoredSecret | undefined> {
    const data = this.secrets.get(name);
    return data && { data, version: JSON.stringify(data) };
  }

  async create(name: string, data: SecretData): Promise<void> {
    this.meanwhile.shift()?.();
    if (this.secrets.has(name)) throw new ConflictError(name);
    this.secrets.set(name, data);
    this.writes += 1;
  }

  async patch(name: string, data: SecretData, version: string): Promise<void> {
    this.meanwhile.shift()?.();
    const existing = this.secrets.get(name);
    if (JSON.stringify(existing) !== version) throw new ConflictError(name);
    this.secrets.set(name, { ...existing, ...data });
    this.writes += 1;
  }
}

let store: MemorySecrets;
beforeEach(() => {
  store = new MemorySecrets();
});
const complete = (...names: string[]) => completeSecrets(store, new Map(names.map((name) => [name, twoKeys])), logger);

describe('completing secrets', () => {
  it('makes those that are missing', async () => {
    await complete('one', 'two');
    expect(Object.fromEntries(store.secrets)).toEqual({
      one: { a: 'new a', b: 'new b' },
      two: { a: 'new a', b: 'new b' },
    });
  });

  it('adds what one lacks and keeps what it has, foreign keys too', async () => {
    store.secrets.set('one', { a: 'old a', c: 'old c' });
    await complete('one');
    expect(store.secrets.get('one')).toEqual({ a: 'old a', b: 'new b', c: 'old c' });
  });

  it('writes nothing when all is there', async () => {
    await complete('one');
    await complete('one');
    expect(store.writes).toBe(1);
  });

  it('keeps what another process made at the same time', async () => {
    store.meanwhile.push(
      () => store.secrets.set('one', { a: 'their a' }),
      () => store.secrets.set('one', { a: 'their a', b: 'their b' }),
    );
    await complete('one');
    expect(store.secrets.get('one')).toEqual({ a: 'their a', b: 'their b' });
  });

  it('gives up with words when somebody writes all the time', async () => {
    for (let n = 0; n < 9; n += 1) store.meanwhile.push(() => store.secrets.set('one', { n: String(n) }));
    await expect(complete('one')).rejects.toMatchObject({ reason: 'secret_contended' });
  });

  it('does not hide what else goes wrong', async () => {
    store.meanwhile.push(() => {
      throw new Error('disk full');
    });
    await expect(complete('one')).rejects.toThrow('disk full');
  });
});
