import { code, count, fence, oneLine, tail } from '../text.mjs';
import { lacking } from '../toolbox.mjs';

/** Runs a command and reports its exit code and output. */
export function* run({ command }, tools) {
  if (!tools.has('shell')) return `${lacking('shell')}, so I did not run ${code(command)}.`;
  const [result] = yield { say: `Running ${code(command)}.`, calls: [tools.shell(command)] };
  return reportCommand(command, result);
}

/** Finds out from the listing how this workspace runs its tests, and runs them. */
export function* test(_, tools) {
  if (!tools.has('shell')) return `${lacking('shell')}, so I did not run the tests.`;
  if (!tools.has('list'))
    return `${lacking('list')}, so I cannot tell how the tests are run. Name the command, as in “run ${code('make test')}”.`;
  const [listing] = yield { say: 'Looking how the tests are run here.', calls: [tools.list('.')] };
  if (listing.kind !== 'dir') return `Listing the workspace gave no files, but: “${oneLine(listing.text, 300)}”`;
  const found = testCommand(listing.entries ?? []);
  if (!found)
    return `Among ${count(listing.entries.length, 'file')} I found nothing that tells how the tests are run. Name the command, as in “run ${code('make test')}”.`;
  const [result] = yield {
    say: `${code(found.because)} suggests ${code(found.command)}; running it.`,
    calls: [tools.shell(found.command)],
  };
  return reportCommand(found.command, result);
}

const COMMANDS = [
  [/^package\.json$/, 'npm test'],
  [/^go\.mod$/, 'go test ./...'],
  [/^Cargo\.toml$/, 'cargo test'],
  [/^(?:pytest\.ini|conftest\.py|tests?\/conftest\.py)$/, 'python3 -m pytest -q'],
  [/^(?:.*\/)?test_\w+\.py$/, 'python3 -m unittest discover'],
  [/^Makefile$/, 'make test'],
];

function testCommand(entries) {
  for (const [pattern, command] of COMMANDS) {
    const because = entries.find((entry) => pattern.test(entry));
    if (because) return { because, command };
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
