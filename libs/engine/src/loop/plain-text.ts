const ERROR_MAX_CHARS = 500;

/** An error's text as it may be shown: one line, bounded, free of markup. */
export function plainText(text: string, maxChars = ERROR_MAX_CHARS): string {
  const line = text
    .slice(0, maxChars * 8)
    .replace(/<[^<>]*>/g, ' ')
    .replace(/[<>]/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
  return line.length <= maxChars ? line : `${line.slice(0, maxChars - 1)}…`;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
