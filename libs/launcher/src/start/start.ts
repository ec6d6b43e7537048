import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CancelledError, FailedPreconditionError } from '@margay/errors';
import { launcherConfig, type LauncherConfig } from '../config';
import { openServers } from '../open-servers';
import { startPlatform, type Platform } from '../platform/start-platform';
import { freePorts, isPortFree } from '../processes/ports';
import { describeExit, type ProcessExit } from '../processes/supervised-process';
import type { Progress } from '../progress';
import { START_SOURCES } from '../provision/store';
import { openHome, type Home } from './home';
import { writeLocalProfile } from './profiles';
import { openProvider } from './provider';
import { runTask } from './run-task';
import { sandboxWarning } from './sandbox-warning';
import { parseStartOptions, START_USAGE, type StartOptions } from './start-options';
import { prepareWorkspace } from './workspace';

const DEFAULT_PORT = 8787;
/** How long an interrupted start waits for a step that cannot be interrupted; what it runs ends with this process. */
const GIVE_UP_MS = 3_000;

export interface StartCommand {
  /** Arguments behind `npm start --`. */
  args: readonly string[];
  /** Folder of the project: bundles in `dist`, the sample workspace and the demonstration model in `tools`. */
  root: string;
  /** Folder the user called from. */
  calledIn: string;
  /** Receives progress (standard error) … */
  progress: Progress;
  /** … and what the user asked for (standard output). */
  print: Progress;
  /** Aborted by Ctrl-C: everything started is ended. */
  signal: AbortSignal;
  config?: LauncherConfig;
}

/** `npm start`: brings everything up, runs a task or waits for the abort, ends what it started. Answers the exit code. */
export async function startCommandLine(command: StartCommand): Promise<number> {
  const options = parseStartOptions(command.args);
  if (options.isHelp) {
    command.print(START_USAGE);
    return 0;
  }
  const config = command.config ?? launcherConfig();
  const directory = resolve(
    command.calledIn,
    options.home ?? (config.environment.MARGAY_HOME || join(homedir(), '.margay')),
  );
  const home = await openHome(directory, command.progress);
  const run = new LocalRun(command, options, config, home);
  try {
    return await run.run();
  } finally {
    await run.close();
    await home.release();
  }
}

class LocalRun {
  private readonly closers: (() => Promise<void>)[] = [];
  private readonly fatal = Promise.withResolvers<never>();

  constructor(
    private readonly command: StartCommand,
    private readonly options: StartOptions,
    private readonly config: LauncherConfig,
    private readonly home: Home,
  ) {
    // Raced against everything that waits; without a waiter it must not count as unhandled.
    this.fatal.promise.catch(() => undefined);
    command.signal.addEventListener('abort', () => this.fatal.reject(new CancelledError('interrupted', 'interrupted')));
  }

  async run(): Promise<number> {
    const workspace =
      this.options.task === undefined && this.options.workspace === undefined ? undefined : await this.workspace();
    const platform = await this.orFatal(this.bringUp());
    await this.warnOfSandboxes(platform);
    const profile = await writeLocalProfile(this.home.directory, {
      url: platform.gatewayUrl,
      apiKeyFile: platform.apiKeyFile,
    });
    if (this.options.task !== undefined && workspace !== undefined)
      return this.task(platform, this.options.task, workspace);
    this.announce(platform, profile, workspace);
    return this.untilInterrupted();
  }

  /** Ends what was started, last first. */
  async close(): Promise<void> {
    if (this.closers.length > 0) this.command.progress('stopping');
    for (const closer of this.closers.reverse()) {
      await closer().catch((error: unknown) => this.command.progress(`not ended cleanly: ${String(error)}`));
    }
  }

  private async bringUp(): Promise<Platform> {
    const { progress, root } = this.command;
    const { directory, ledger } = this.home;
    const common = { progress, ledger, config: this.config };
    const onExit = (exit: ProcessExit) => this.onServerExit(exit);
    const [servers, provider] = await Promise.all([
      this.keep(openServers({ ...common, directory: join(directory, 'servers'), allow: START_SOURCES, onExit })),
      this.keep(
        openProvider({
          ...common,
          onExit,
          environment: this.config.environment,
          home: directory,
          demoModel: join(root, 'tools/demo-model/server.mjs'),
        }),
      ),
    ]);
    this.command.signal.throwIfAborted();
    progress('starting Margay');
    return this.keep(
      startPlatform({
        ...common,
        home: directory,
        mode: this.options.mode,
        runners: this.options.runners,
        nats: servers.nats,
        store: servers.store,
        entry: join(root, 'dist/margay.cjs'),
        sandboxdEntry: join(root, 'dist/sandboxd.cjs'),
        ...(this.config.egressPolicyFile !== undefined && { egressPolicyFile: this.config.egressPolicyFile }),
        gatewayPort: await this.gatewayPort(),
        respawn: true,
        signal: this.command.signal,
        env: { MARGAY_ALLOW_EXTERNAL_CWD: 'true', ...provider.env },
      }),
    );
  }

  /** Registers what starts, so that it is ended also when the wait for it was given up. */
  private keep<T extends { stop(): Promise<void> }>(starting: Promise<T>): Promise<T> {
    this.closers.push(async () => {
      const started = await Promise.race([
        starting.catch(() => undefined),
        sleep(GIVE_UP_MS, undefined, { ref: false }),
      ]);
      await started?.stop();
    });
    return starting;
  }

  private async gatewayPort(): Promise<number> {
    const { port } = this.options;
    if (await isPortFree(port ?? DEFAULT_PORT)) return port ?? DEFAULT_PORT;
    if (port !== undefined)
      throw new FailedPreconditionError('port_in_use', `port ${port} is in use; name another one by --port`);
    const [free = 0] = await freePorts(1);
    this.command.progress(`port ${DEFAULT_PORT} is in use, the gateway takes ${free}`);
    return free;
  }

  private workspace(): Promise<string> {
    const { workspace, isWorkspaceCopied } = this.options;
    return prepareWorkspace({
      home: this.home.directory,
      calledIn: this.command.calledIn,
      ...(workspace !== undefined && { workspace }),
      isCopied: isWorkspaceCopied,
      sample: join(this.command.root, 'tools/sample-workspace'),
      ...(process.getuid && { userId: process.getuid() }),
    });
  }

  /** Whoever starts it is to know what a model's commands can reach. */
  private async warnOfSandboxes({ processes }: Platform): Promise<void> {
    const executor = processes.find(({ services }) => services.includes('tool-executor'));
    const warning = executor && (await sandboxWarning(executor.logFile));
    if (warning !== undefined) this.command.progress(`warning: ${warning}`);
  }

  private task(platform: Platform, task: string, workspace: string): Promise<number> {
    this.command.progress(`workspace: ${workspace}`);
    return runTask({
      cli: join(this.command.root, 'dist/cli.cjs'),
      task,
      workspace,
      home: this.home.directory,
      gatewayUrl: platform.gatewayUrl,
      apiKeyFile: platform.apiKeyFile,
      environment: this.config.environment,
      signal: this.command.signal,
    });
  }

  private announce({ gatewayUrl, apiKey }: Platform, profile: string, workspace?: string): void {
    const body = workspace === undefined ? '{}' : JSON.stringify({ cwd: workspace });
    this.command.print(`
Margay is ready: ${gatewayUrl}
  API key   ${apiKey}
  profile   local, in ${profile}
  logs      ${join(this.home.directory, 'logs')}

Try it:
  curl -X POST ${gatewayUrl}/api/sessions -H 'X-API-KEY: ${apiKey}' -H 'content-type: application/json' -d '${body}'

Ctrl-C ends everything.`);
  }

  private async untilInterrupted(): Promise<number> {
    try {
      return await this.fatal.promise;
    } catch (error) {
      if (this.command.signal.aborted) return 0;
      throw error;
    }
  }

  private orFatal<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.fatal.promise]);
  }

  private onServerExit(exit: ProcessExit): void {
    if (exit.expected) return;
    const message = `a server ended (${describeExit(exit)}); see the logs in ${this.home.directory}/servers and logs`;
    this.fatal.reject(new FailedPreconditionError('server_ended', message));
  }
}
