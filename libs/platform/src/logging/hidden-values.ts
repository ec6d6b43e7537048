import { createHash, randomBytes } from 'node:crypto';
import { SecretMatcher } from '../redaction/secret-matcher';
import { printsOf } from '../redaction/secret-prints';

/** Beyond so many the oldest are forgotten, all at once. */
const VALUES_MAX = 2_000;

/** Prints of what this process has had in its hands. There is one for all its loggers, as there is one process. */
class HiddenValues {
  private key = randomBytes(32);
  private matcher = new SecretMatcher(this.key, []);
  private readonly known = new Set<string>();

  add(name: string, value: string): void {
    const digest = createHash('sha256').update(this.key).update(value).digest('base64');
    if (this.known.has(digest)) return;
    if (this.known.size >= VALUES_MAX) this.reset();
    this.known.add(digest);
    this.matcher.add(printsOf(this.key, [{ name, owner: '', value }]));
  }

  /** A line of JSON stays one. */
  hide(line: string): string {
    const { value, names } = this.matcher.maskText(line);
    if (names.size === 0) return line;
    try {
      return `${this.matcher.maskJson(line).value}\n`;
    } catch {
      return value; // no JSON any more since other secrets were cut out of it: who logs must not fail
    }
  }

  private reset(): void {
    this.known.clear();
    this.key = randomBytes(32);
    this.matcher = new SecretMatcher(this.key, []);
  }
}

const values = new HiddenValues();

/**
 * From now on no logger of this process writes the value, in whichever common spelling: `[secret:NAME]` stands there. To be
 * called by whoever takes a secret into its hands. Values of fewer than eight characters are not looked for.
 */
export const hideInLogs = (name: string, value: string): void => values.add(name, value);

export const hideValues = (line: string): string => values.hide(line);
