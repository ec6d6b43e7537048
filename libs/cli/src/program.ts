import { InvalidArgumentError } from '@margay/client';
import { Command, InvalidArgumentError as BadOption, Option } from 'commander';
import { closest, distance } from 'fastest-levenshtein';
import { CommandContext } from './command-context';
import { listModels, listProjects, listTools } from './commands/catalogues';
import { run, type RunOptions } from './commands/run';
import { listSessions, showSession, type ListOptions } from './commands/sessions';
import { status, version } from './commands/status';
import { send, stop, tail, type TailOptions } from './commands/steer';
import { verify } from './commands/verify';
import type { GlobalOptions } from './connection';
import { durationMs } from './duration';
import type { Terminal } from './terminal';

type Work = (context: CommandContext) => Promise<number>;

/** Turns our words on a bad value into commander's. */
const duration = (text: string): number => {
  try {
    return durationMs(text);
  } catch (error) {
    throw new BadOption(error instanceof Error ? error.message : String(error));
  }
};

const count = (text: string): number => {
  if (/^[1-9]\d*$/.test(text)) return Number(text);
  throw new BadOption('it must be a whole number from 1');
};

/** The commands; each calls `done` with its exit code. */
export function buildProgram(terminal: Terminal, done: (code: number) => void): Command {
  const program = new Command('margay')
    .description('Run and watch AI agents on a Margay server.')
    .option('--profile <name>', 'profile of profiles.json')
    .option('--url <address>', 'address of the server')
    .option('--tenant <name>', 'tenant to act in')
    .option('--json', 'one JSON document, or one per line for streams')
    .option('--quiet', 'nothing but the final text')
    .option('--plain', 'no escape codes, one line per event')
    .option('--no-color', 'no colours')
    .option('--verbose', 'more about failures')
    .option('--timeout <duration>', 'bound of one request, e.g. 10s', duration)
    .helpCommand('help [command]', 'show help')
    .showSuggestionAfterError(false);
  const act =
    <A extends unknown[]>(work: (...args: A) => Work) =>
    async (...args: unknown[]): Promise<void> => {
      const command = args.at(-1) as Command;
      done(await work(...(args as A))(new CommandContext(terminal, command.optsWithGlobals<GlobalOptions>())));
    };
  addRunCommands(program, act);
  addListCommands(program, act);
  return quieted(program, terminal);
}

type Act = <A extends unknown[]>(work: (...args: A) => Work) => (...args: unknown[]) => Promise<void>;

function addRunCommands(program: Command, act: Act): void {
  program
    .command('run <text...>')
    .description('run one task and stream it; - reads it from standard input')
    .option('-s, --session <id>', 'session to go on with: id, prefix, tag or @last')
    .option('--project <name>', 'project of a new session')
    .option('--cwd <folder>', 'work in this folder of the server’s machine')
    .option('--model <name>', 'model to use')
    .addOption(new Option('--mode <mode>', 'plan or act').choices(['plan', 'act']))
    .option('--tag <name>', 'reuse the session of this tag, or give it to a new one')
    .option('--detach', 'print the session id and leave')
    .option('--time-limit <duration>', 'cancel the run after so long', duration)
    .action(act((text: string[], options: RunOptions) => (context) => run(context, text, options)));
  program
    .command('send <id> <text...>')
    .description('steer the active run, or start one')
    .option('--follow', 'stream what follows')
    .action(
      act((id: string, text: string[], options: { follow?: boolean }) => (context) => send(context, id, text, options)),
    );
  program
    .command('stop <id>')
    .description('cancel the active run')
    .option('--interrupt', 'only end its current step')
    .action(act((id: string, options: { interrupt?: boolean }) => (context) => stop(context, id, options)));
  program
    .command('tail <id>')
    .description('show a session’s events, then what comes')
    .option('--follow', 'go on across runs')
    .option('--after <place>', 'only what follows this event number or time')
    .option('--raw', 'every item as JSON, deltas and states too')
    .action(act((id: string, options: TailOptions) => (context) => tail(context, id, options)));
}

function addListCommands(program: Command, act: Act): void {
  const sessions = program.command('sessions').description('list and show sessions');
  sessions
    .command('list', { isDefault: true })
    .description('newest first')
    .option('--project <name>', 'of this project')
    .option('--status <status>', 'in this status')
    .option('--archived', 'archived ones too')
    .option('--limit <count>', 'at most so many, default 50', count)
    .action(act((options: ListOptions) => (context) => listSessions(context, options)));
  sessions
    .command('show <id>')
    .description('everything about one session')
    .action(act((id: string) => (context) => showSession(context, id)));
  program
    .command('verify [id]')
    .description('check that the stored log of a session is whole and unchanged; default @last')
    .action(
      act(
        (id: string = '@last') =>
          (context) =>
            verify(context, id),
      ),
    );
  program
    .command('tools')
    .description('list tools')
    .option('--project <name>', 'of this project')
    .action(act((options: { project?: string }) => (context) => listTools(context, options)));
  program
    .command('models')
    .description('list models')
    .action(act(() => listModels));
  program
    .command('projects')
    .description('list projects')
    .action(act(() => listProjects));
  program
    .command('status')
    .description('reach and health of the server')
    .action(act(() => status));
  program
    .command('version')
    .description('versions of this program and the server')
    .action(act(() => version));
}

/** Every command throws instead of ending the process, and says nothing by itself but help. */
function quieted(command: Command, terminal: Terminal): Command {
  command.exitOverride().configureOutput({
    writeOut: (text) => terminal.stdout.write(text),
    writeErr: () => undefined,
    getOutHelpWidth: () => terminal.stdout.columns,
    getOutHasColors: () => false,
  });
  command.commands.forEach((child) => quieted(child, terminal));
  return command;
}

const FAR = 4;

/** What a person reads when commander refused the arguments. */
export function usageError(program: Command, code: string, message: string, argv: string[]): Error {
  const names = program.commands.map((command) => command.name());
  const typed = argv.find((word) => !word.startsWith('-')) ?? '';
  if (code !== 'commander.unknownCommand') {
    const hint = names.includes(typed) ? `margay help ${typed}` : 'margay help';
    return new InvalidArgumentError('usage', message.replace(/^error: /, ''), { details: { hint } });
  }
  const unknown = /'([^']*)'/.exec(message)?.[1] ?? typed;
  const near = closest(unknown, names);
  const hint = distance(unknown, near) < FAR ? `did you mean margay ${near}?` : 'margay help';
  return new InvalidArgumentError('unknown_command', `there is no command "${unknown}"`, { details: { hint } });
}
