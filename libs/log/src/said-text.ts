import type { BlobReference } from './blobs';

/** What somebody said, or a preview of it and where the whole lies. */
export interface SaidText {
  text: string;
  textBlob?: BlobReference;
}

/** Fields of the public event. */
export function publicText({ text, textBlob }: SaidText): { text: string } {
  return textBlob ? { text, ...{ text_truncated: true, text_blob: textBlob } } : { text };
}

/** The text of the private record: whole for who reads it by `inlineBlobs`. */
export function privateText({ text, textBlob }: SaidText): string | { $blob: string } {
  return textBlob ? { $blob: textBlob.id } : text;
}
