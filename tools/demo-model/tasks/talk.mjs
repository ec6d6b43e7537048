import { code, list } from '../text.mjs';

const ABILITIES = [
  ['list', 'look around the workspace and say what is in it (“look around”)'],
  ['read', 'read files and say what is in them (“read README.md”)'],
  ['edit', 'change a value, replace a text or write a file (“read config.py and change limit to 20”)'],
  ['shell', 'run a command and report its outcome (“run the tests”)'],
];

/** Says what this model is and what it can do with the tools at hand. */
export function introduce(tools) {
  const abilities = ABILITIES.filter(([purpose]) => tools.has(purpose)).map(([, ability]) => `- ${ability}`);
  const who =
    'I am Margay’s demonstration model: a small script that follows fixed rules, so that you can try the platform without a provider’s key. ' +
    'I understand a few kinds of requests and answer only from what the tools return.';
  if (abilities.length === 0)
    return `${who} This run offers me no tools I know, so there is nothing I can do for you here but say so.`;
  return `${who} In this run I can:\n\n${abilities.join('\n')}`;
}

export function* talk(_, tools) {
  return `Hello! ${introduce(tools)}`;
}

/** The answer to a request no rule fits. */
export function* unknown({ text }, tools) {
  return `I found no task I know in “${text}”. ${introduce(tools)}`;
}

/** What the run has so far, one line per result. */
export function soFar(calls, interpret) {
  if (calls.length === 0) return 'Nothing has been done yet.';
  return calls
    .map((call) => `- ${code(call.name)} (${targetOf(call)}): ${outcome(interpret(call.result ?? ''))}`)
    .join('\n');
}

const targetOf = ({ arguments: given }) =>
  code(
    String(
      given.path ?? given.file_path ?? given.command ?? String(given.content ?? given.malformed ?? '').split('\n')[0],
    ),
  );

function outcome(result) {
  const { kind, text } = result;
  if (kind === 'dir') return `${result.entries?.length ?? 0} files`;
  if (kind === 'file') return `${result.total_lines} lines`;
  if (kind === 'shell') return `exit code ${result.exit_code}`;
  if (kind === 'diff') return `changed ${list((result.files ?? []).map(String).map(code))}`;
  return `${kind === 'error' ? 'failed: ' : ''}“${text.split('\n')[0].slice(0, 160)}”`;
}
