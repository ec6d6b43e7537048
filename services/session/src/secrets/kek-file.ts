import { readFile } from 'node:fs/promises';
import { FailedPreconditionError, InvalidArgumentError } from '@margay/errors';
import { hideInLogs, type Logger } from '@margay/platform';
import { z } from 'zod';
import { KeyEncryption, type WrappedKey } from './key-encryption';
import { KEY_BYTES, seal, unseal, type Place } from './seal';

const LOOK_EVERY_MS = 2_000;

const Key = z.base64().transform((text, context) => {
  const key = Buffer.from(text, 'base64');
  hideInLogs('kek', text);
  if (key.length !== KEY_BYTES) context.addIssue({ code: 'custom', message: `must be ${KEY_BYTES} bytes in base64` });
  return key;
});
const Kek = z
  .object({ active: z.string(), keys: z.record(z.string().regex(/^[\w-]{1,32}$/), Key) })
  .refine(({ active, keys }) => Object.hasOwn(keys, active), { path: ['active'], message: 'names none of the keys' });
type Kek = z.infer<typeof Kek>;

/**
 * The key-encryption keys in a file: `{"active":"k2","keys":{"k1":"<32 bytes, base64>","k2":…}}`. It is looked at every two
 * seconds. A faulty one changes nothing, and keys that were in it once are kept until the process ends.
 */
export class KekFile extends KeyEncryption {
  /** What is wrong with the file as it is now; holds nothing of its content. */
  fault: string | undefined;
  private timer?: NodeJS.Timeout;

  private constructor(
    private readonly file: string,
    private text: string,
    private kek: Kek,
    private readonly logger: Logger,
  ) {
    super();
  }

  /** @throws FailedPreconditionError `kek_unreadable`; InvalidArgumentError `kek_faulty` */
  static async open(file: string, logger: Logger): Promise<KekFile> {
    const text = await read(file);
    return new KekFile(file, text, parse(file, text), logger);
  }

  get activeKid(): string {
    return this.kek.active;
  }

  has(kid: string): boolean {
    return Object.hasOwn(this.kek.keys, kid);
  }

  wrap(key: Buffer, place: Place): Promise<WrappedKey> {
    const { nonce, ct } = seal(this.keyOf(this.activeKid), key, place);
    return Promise.resolve({ kid: this.activeKid, wrapped: `${nonce}.${ct}` });
  }

  async unwrap({ kid, wrapped }: WrappedKey, place: Place): Promise<Buffer> {
    const [nonce = '', ct = ''] = wrapped.split('.');
    return unseal(this.keyOf(kid), { nonce, ct }, place);
  }

  watch(): void {
    this.timer = setInterval(() => void this.refresh(), LOOK_EVERY_MS);
    this.timer.unref();
  }

  close(): void {
    clearInterval(this.timer);
  }

  /** Takes what the file says now, if it can be used. */
  async refresh(): Promise<void> {
    try {
      const text = await read(this.file);
      if (text !== this.text) {
        this.take(parse(this.file, text));
        this.text = text;
      }
      this.fault = undefined;
    } catch (error) {
      const { message } = error as Error;
      if (this.fault !== message) this.logger.error({ err: error }, 'the file of key-encryption keys cannot be used');
      this.fault = message;
    }
  }

  private take(next: Kek): void {
    for (const [kid, key] of Object.entries(next.keys))
      if (this.has(kid) && !this.keyOf(kid).equals(key))
        throw faulty(this.file, `keys.${kid} is another key than before; give a new key a new name`);
    this.kek = { active: next.active, keys: { ...this.kek.keys, ...next.keys } };
    this.logger.info({ active: next.active, kids: Object.keys(next.keys) }, 'the file of key-encryption keys was read');
  }

  private keyOf(kid: string): Buffer {
    const key = this.has(kid) ? this.kek.keys[kid] : undefined;
    if (key) return key;
    throw new FailedPreconditionError('kek_missing', `The key-encryption key ${kid} is not in ${this.file}.`);
  }
}

async function read(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (cause) {
    const message = `The file of key-encryption keys ${file} cannot be read; check MARGAY_KEK_FILE.`;
    throw new FailedPreconditionError('kek_unreadable', message, { cause });
  }
}

function parse(file: string, text: string): Kek {
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    throw faulty(file, 'is no JSON'); // the parser's own words would quote the keys
  }
  const parsed = Kek.safeParse(content);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw faulty(file, `${issue?.path.join('.')}: ${issue?.message}`);
}

function faulty(file: string, what: string) {
  return new InvalidArgumentError('kek_faulty', `The file of key-encryption keys ${file}: ${what}.`);
}
