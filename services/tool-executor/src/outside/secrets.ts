const HIDDEN = '[secret]';

/** Secrets that were sent: a server that repeats them must not bring them into a transcript. */
export class Secrets {
  private readonly values = new Set<string>();

  add(secret: string): void {
    this.values.add(secret);
    // As it would stand inside JSON, also that of servers which write slashes as `\\/`.
    const inJson = JSON.stringify(secret).slice(1, -1);
    this.values.add(inJson).add(inJson.replaceAll('/', '\\/'));
  }

  /** @param isCut the text ends anywhere, perhaps within a secret */
  hide(text: string, isCut = false): string {
    const longestFirst = [...this.values].sort((a, b) => b.length - a.length);
    const hidden = longestFirst.reduce((rest, secret) => rest.replaceAll(secret, HIDDEN), text);
    const longest = longestFirst[0]?.length ?? 0;
    return isCut && longest > 0 ? hidden.slice(0, -longest) : hidden;
  }

  /** The same in all texts of a JSON value, however its own text had spelt them. */
  hideIn(value: unknown): unknown {
    if (typeof value === 'string') return this.hide(value);
    if (Array.isArray(value)) return value.map((item) => this.hideIn(item));
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [this.hide(key), this.hideIn(item)]));
  }
}
