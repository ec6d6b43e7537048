// Token counts: one token per four characters, and a memory of the prefixes seen, as providers keep one for their caches.
import { createHash } from 'node:crypto';

const CHARACTERS_PER_TOKEN = 4;
const MAX_PREFIXES = 20_000;

export const tokensOf = (characters) => Math.ceil(characters / CHARACTERS_PER_TOKEN);

/** Remembers every prefix (tools, then message by message) of the requests it has seen; the oldest are forgotten. */
export class PrefixMemory {
  #seen = new Set();

  /** `{ promptTokens, cachedTokens }` of a request; from now on its prefixes count as seen. */
  measure(tools, messages) {
    let hash = '';
    let characters = 0;
    let cached = 0;
    let isKnown = true;
    for (const part of [tools ?? [], ...messages]) {
      const text = JSON.stringify(part);
      characters += text.length;
      hash = createHash('sha1').update(hash).update(text).digest('base64');
      isKnown &&= this.#seen.has(hash);
      if (isKnown) cached = characters;
      this.#remember(hash);
    }
    return { promptTokens: tokensOf(characters), cachedTokens: tokensOf(cached), fingerprint: hash };
  }

  #remember(hash) {
    this.#seen.delete(hash);
    this.#seen.add(hash);
    if (this.#seen.size > MAX_PREFIXES) this.#seen.delete(this.#seen.values().next().value);
  }
}
