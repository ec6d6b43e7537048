// Reads what the script needs from a request body without parsing it: bodies grow with every step, and parsing them
// would cost the bench model more CPU than many a client under test. Inside a JSON string every quote is escaped, so
// a key with its quotes is only ever found where it is a key.

const ROLE = /"role":\s*"(\w+)"/g;

/** `{ model, stream, includeUsage, hasTools, results }` of a body as latin1 text. */
export function scan(body, scope) {
  return {
    model: /"model":\s*"([^"]*)"/.exec(body)?.[1] ?? '',
    stream: /"stream":\s*true/.test(body),
    includeUsage: /"include_usage":\s*true/.test(body),
    hasTools: body.includes('"tools":'),
    results: countResults(body, scope),
  };
}

/**
 * Tool results since the run began. A run begins at a user message that does not stand right behind a tool result; one
 * that does is a message to the run at work. System messages do not count either way.
 */
function countResults(body, scope) {
  let results = 0;
  let previous = '';
  for (const [, role] of body.matchAll(ROLE)) {
    if (role === 'system' || role === 'developer') continue;
    if (role === 'tool') results += 1;
    else if (role === 'user' && previous !== 'tool' && scope === 'turn') results = 0;
    previous = role;
  }
  return results;
}
