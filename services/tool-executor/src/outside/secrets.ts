const HIDDEN = '[secret]';

/** Secrets that were sent: a server that repeats them must not bring them into a transcript. */
export class Secrets {
  private readonly values = new Set<string>();

  add(secret: string): void {
    this.values.add(secret);
    // As it would stand inside JSON.
    this.values.add(JSON.stringify(secret).slice(1, -1));
  }

  /** @param isCut the text ends anywhere, perhaps within a secret */
  hide(text: string, isCut: boolean): string {
    const longestFirst = [...this.values].sort((a, b) => b.length - a.length);
    const hidden = longestFirst.reduce((rest, secret) => rest.replaceAll(secret, HIDDEN), text);
    const longest = longestFirst[0]?.length ?? 0;
    return isCut && longest > 0 ? hidden.slice(0, -longest) : hidden;
  }
}
