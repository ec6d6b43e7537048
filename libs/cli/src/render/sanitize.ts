/* eslint-disable no-control-regex -- control characters are this file's subject */

/** CSI; OSC, DCS, SOS, PM and APC with their text; two-character escapes. Both the 7-bit and the 8-bit forms. */
const SEQUENCES =
  /(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)|\x1b[ -/]*[0-~]/g;
/** Every other control character but tab and line feed, and the marks that reorder or hide text. */
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
/** A sequence, or a CR, that the next piece may complete. */
const OPEN_END =
  /(?:\r|\x1b[ -/]*|(?:\x1b\[|\x9b)[0-?]*[ -/]*|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]{0,200}\x1b?)$/;

/** Hostile text made harmless: no escape sequence or control character of it reaches the terminal. */
export const sanitize = (text: string): string =>
  text
    .replace(SEQUENCES, '')
    .replace(/\r\n?|[\u2028\u2029]/g, '\n')
    .replace(CONTROLS, '');

/** A JSON document on one line; control characters and marks that JSON itself leaves bare are spelled as escapes. */
export const jsonLine = (document: unknown): string =>
  JSON.stringify(document).replace(CONTROLS, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** Harmless text on one line. */
export const oneLine = (text: string): string => sanitize(text).replace(/\s+/g, ' ').trim();

/** Cuts to `width` characters, with `…` in place of what is missing. */
export const cut = (text: string, width: number): string =>
  text.length > width ? `${[...text].slice(0, Math.max(0, width - 1)).join('')}…` : text;

/** Sanitizes text that comes in pieces, so a sequence cut in two leaves no rest behind. */
export class PieceSanitizer {
  #held = '';

  push(piece: string): string {
    const text = this.#held + piece;
    const end = OPEN_END.exec(text)?.index ?? text.length;
    this.#held = text.slice(end);
    return sanitize(text.slice(0, end));
  }

  /** What was held back, at the text's end. */
  flush(): string {
    const rest = sanitize(this.#held);
    this.#held = '';
    return rest;
  }
}
