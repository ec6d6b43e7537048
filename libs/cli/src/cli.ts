import { CommanderError } from 'commander';
import { CommandContext } from './command-context';
import type { GlobalOptions } from './connection';
import { reportFailure } from './failures';
import { buildProgram, usageError } from './program';
import type { Terminal } from './terminal';

/** Runs one command line (without the program's own name) and answers its exit code. Failures are reported, not thrown. */
export async function runCli(argv: string[], terminal: Terminal): Promise<number> {
  let code = 0;
  const program = buildProgram(terminal, (given) => (code = given));
  if (!argv.length) {
    program.outputHelp();
    return code;
  }
  try {
    await program.parseAsync(argv, { from: 'user' });
    return code;
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return 0;
    const failure = error instanceof CommanderError ? usageError(program, error.code, error.message, argv) : error;
    const options: GlobalOptions = {
      ...program.opts<GlobalOptions>(),
      ...(argv.includes('--json') ? { json: true } : {}),
    };
    const { style } = new CommandContext(terminal, options);
    return reportFailure(failure, terminal, { json: options.json ?? false, verbose: options.verbose ?? false, style });
  }
}
