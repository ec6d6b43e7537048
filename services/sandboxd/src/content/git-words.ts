import { ContentFailure, type FailureReason } from './content-failure';

/** What git says in each case, the surest signs first: one failure often leads to the words of another. */
const SIGNS: readonly [FailureReason, RegExp][] = [
  ['disk_full', /No space left on device|Disk quota exceeded/i],
  ['too_large', /File too large|write error: File size limit/i],
  ['egress_denied', /(response|code) (403|407|429) from proxy|CONNECT tunnel failed, response (403|407|429)/i],
  ['network', /(response|code) 50\d from proxy|CONNECT tunnel failed, response 50\d/i],
  [
    'auth',
    /Authentication failed|could not read (Username|Password)|returned error: (401|403)|terminal prompts disabled/i,
  ],
  [
    'not_found',
    /repository '.*' not found|returned error: (404|410)|Remote branch .* not found|couldn't find remote ref|not our ref|does not appear to be a git repository|unable to (find|read tree)|pathspec .* did not match/i,
  ],
  [
    'network',
    /Could not resolve|Failed to connect|Couldn't connect|Connection (refused|reset|timed out)|SSL|TLS|certificate|early EOF|unexpected disconnect|RPC failed|timed out|returned error: 5\d\d|Empty reply|unable to access/i,
  ],
];
const MESSAGES: Partial<Record<FailureReason, string>> = {
  auth: 'The host asks for credentials, or refuses those it gets; give the tenant or its member a git credential for it.',
  not_found: 'There is no such repository, branch, tag or commit, or it is not shown without credentials.',
  network: 'The host could not be reached, or the connection broke off.',
  egress_denied: 'The egress policy does not allow this host; the policy of the tenant has to name it.',
  disk_full: 'The disk of the workspace is full.',
  too_large: 'The repository is larger than the workspace may be.',
  git_failed: 'Git failed.',
};
const WORDS_MAX_CHARS = 400;

/** The failure that git's words tell of. */
export function failureOfGit(words: string): ContentFailure {
  const reason = SIGNS.find(([, sign]) => sign.test(words))?.[0] ?? 'git_failed';
  return new ContentFailure(reason, `${MESSAGES[reason] ?? ''} Git says: ${shown(words)}`);
}

export function messageOf(reason: FailureReason): string {
  return MESSAGES[reason] ?? '';
}

/** The last lines, on one; git repeats addresses, which hold no secret: those with one are refused before. */
function shown(words: string): string {
  const lines = words
    .split(/[\r\n]+/)
    .map((line) => line.replace(/\p{Cc}/gu, ' ').trim())
    .filter((line) => /^(fatal|error|remote|warning):/.test(line));
  const text = (lines.length > 0 ? lines.slice(-3).join('; ') : words.slice(-WORDS_MAX_CHARS)).trim();
  return text === '' ? 'nothing.' : text.slice(0, WORDS_MAX_CHARS).replace(/\p{Cc}/gu, ' ');
}
