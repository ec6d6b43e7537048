import { scrubText } from '@margay/platform';

const REDACTED = '[redacted]';

/** What logs of other programs may hold besides what ours are scrubbed of. */
const SECRET_TEXTS: [RegExp, string][] = [
  [/\b(ghp|gho|ghs|glpat|xox[a-z])[-_][A-Za-z0-9_-]{8,}/g, REDACTED],
  [/-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,20}PRIVATE KEY-----|$)/g, REDACTED],
];

export function redact(text: string): string {
  return SECRET_TEXTS.reduce((redacted, [form, mask]) => redacted.replace(form, mask), scrubText(text));
}
