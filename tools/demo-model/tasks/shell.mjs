import { fileLines } from '../results.mjs';
import { code, count, fence, oneLine, tail } from '../text.mjs';
import { lacking } from '../toolbox.mjs';

/** Runs a command and reports its exit code and output. */
export function* run({ command }, tools) {
  if (!tools.has('shell')) return `${lacking('shell')}, so I did not run ${code(command)}.`;
  const [result] = yield { say: `Running ${code(command)}.`, calls: [tools.shell(command)] };
  return reportCommand(command, result);
}

/** Finds out from the README, else from the listing, how this workspace runs its tests, and runs them. */
export function* test(_, tools) {
  if (!tools.has('shell')) return `${lacking('shell')}, so I did not run the tests.`;
  if (!tools.has('list')) return `${lacking('list')}, so I cannot tell how the tests are run. ${NAME_IT}`;
  const [listing] = yield { say: 'Looking how the tests are run here.', calls: [tools.list('.')] };
  if (listing.kind !== 'dir') return `Listing the workspace gave no files, but: “${oneLine(listing.text, 300)}”`;
  const entries = listing.entries ?? [];
  const found = (yield* statedCommand(entries, tools)) ?? customaryCommand(entries);
  if (!found)
    return `Among ${count(entries.length, 'file')} I found nothing that tells how the tests are run. ${NAME_IT}`;
  const [result] = yield { say: found.say, calls: [tools.shell(found.command)] };
  return reportCommand(found.command, result);
}

const NAME_IT = 'Name the command, as in “run `make test`”.';
const COMMAND =
  /^(?:\$ )?((?:python3?|pytest|npm|npx|pnpm|yarn|node|go|cargo|make|mvn|gradle|bundle|tox|\.\/[\w.-]+) [^\n]*\btests?\b[^\n]*|pytest[^\n]*)$/;

/** The first command in the README that mentions tests. */
function* statedCommand(entries, tools) {
  const readme = entries.find((entry) => /^readme(?:\.\w+)?$/i.test(entry));
  if (!readme || !tools.has('read')) return undefined;
  const [result] = yield { say: `Reading ${code(readme)}, which may say how.`, calls: [tools.read(readme)] };
  for (const { number, text } of fileLines(result)) {
    const candidates = [text.trim(), ...[...text.matchAll(/`([^`]+)`/g)].map((match) => match[1])];
    const command = candidates.map((candidate) => COMMAND.exec(candidate)?.[1]).find(Boolean);
    if (command) return { command, say: `Line ${number} of ${code(readme)} says ${code(command)}; running it.` };
  }
  return undefined;
}

const CUSTOMS = [
  [/^package\.json$/, 'npm test'],
  [/^go\.mod$/, 'go test ./...'],
  [/^Cargo\.toml$/, 'cargo test'],
  [/^(?:pytest\.ini|conftest\.py|tests?\/conftest\.py)$/, 'python3 -m pytest -q'],
  [/^tests\/test_\w+\.py$/, 'python3 -m unittest discover tests'],
  [/^test_\w+\.py$/, 'python3 -m unittest discover'],
  [/^Makefile$/, 'make test'],
];

function customaryCommand(entries) {
  for (const [pattern, command] of CUSTOMS) {
    const because = entries.find((entry) => pattern.test(entry));
    if (because) return { command, say: `${code(because)} suggests ${code(command)}; running it.` };
  }
  return undefined;
}

function reportCommand(command, result) {
  if (result.kind === 'error') return `Running ${code(command)} failed. The tool said:\n\n${fence(tail(result.text))}`;
  if (result.kind !== 'shell') return `Running ${code(command)} returned:\n\n${fence(tail(result.text))}`;
  const output = [result.stdout, result.stderr].filter(Boolean).join('\n');
  return `${outcome(command, result)}${output ? ` Its output:\n\n${fence(tail(output))}` : ' It printed nothing.'}`;
}

function outcome(command, result) {
  const took = typeof result.duration_ms === 'number' ? ` after ${Math.round(result.duration_ms)} ms` : '';
  if (result.shell_id !== undefined) return `${code(command)} runs in the background as ${code(result.shell_id)}.`;
  if (result.timed_out) return `${code(command)} was stopped because it took too long${took}.`;
  if (result.exit_code === 0) return `${code(command)} succeeded (exit code 0)${took}.`;
  return `${code(command)} failed with exit code ${result.exit_code}${took}.`;
}
