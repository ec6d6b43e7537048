import { spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { ToolDescriptor } from '@margay/contracts';
import { BUILTIN_TOOLS, findBuiltinTool, outerTimeoutMs } from './descriptors';
import { PathPolicy } from './files/paths';
import type { FileVersion, ToolOutcome } from './outcome';
import { OutputLog } from './shell/output-log';
import { ShellHost } from './shell/shell-host';
import { shellEnvironment } from './shell/spawn-shell';
import { Toolbox, timeoutReason } from './toolbox';

export interface LocalHandsOptions {
  /** The folder the tools work in. */
  root: string;
  /** Further folders the file tools may use. */
  allowedRoots?: readonly string[];
  /** Variables of which PATH, HOME, LANG and TZ are passed on to commands; no other ever is. */
  environment?: Readonly<Record<string, string | undefined>>;
  /** `auto`: commands run in bubblewrap where it works (root writable, all else read-only); default `none`. */
  sandbox?: 'auto' | 'none';
}

export interface LocalCallOptions {
  signal?: AbortSignal;
  /** Names the call in its processes and files; random when absent. */
  callId?: string;
  onOutput?: (chunk: Buffer) => void;
  ifUnchanged?: FileVersion;
}

/** The built-in tools in this process: no sandbox, commands run with your rights (clients §2.1). */
export interface LocalHands {
  /** What `sandbox: 'auto'` found. */
  readonly isolation: 'bwrap' | 'none';
  list(): ToolDescriptor[];
  /** Never rejects; see `Toolbox.execute`. The outer time-out of the descriptor applies. */
  execute(toolId: string, args: unknown, options?: LocalCallOptions): Promise<ToolOutcome>;
  /** Ends everything still running and removes spilled output. */
  close(): Promise<void>;
}

const CLOSE_GRACE_MS = 1_000;
const STREAM_BYTES = 64 * 1024;

export function localHands(options: LocalHandsOptions): LocalHands {
  const paths = new PathPolicy({ ...options, escapingLinks: 'refuse' });
  // A limit on processes would count everything else this user runs.
  const environment = shellEnvironment(options.environment ?? {});
  const wrapper = options.sandbox === 'auto' ? findBubblewrap(paths.root) : undefined;
  const shell = new ShellHost({ environment, limits: {}, wrapper: wrapper ?? [] });
  const toolbox = new Toolbox(paths, shell);
  const spillFolder = path.join(tmpdir(), `margay-output-${randomUUID()}`);
  const spillFileOf = (callId: string): string => path.join(spillFolder, `${callId.replace(/[^\w.-]/g, '_')}.txt`);
  return {
    isolation: wrapper ? 'bwrap' : 'none',
    list: () => [...BUILTIN_TOOLS],
    execute: async (toolId, args, call = {}) => {
      const callId = call.callId ?? randomUUID();
      const output = new OutputLog({ spillFile: spillFileOf(callId) });
      const stopFollowing = call.onOutput ? follow(output, call.onOutput) : undefined;
      const scope = callScope(toolId, args, call.signal);
      try {
        const ifUnchanged = call.ifUnchanged ? { ifUnchanged: call.ifUnchanged } : {};
        return await toolbox.execute(toolId, args, { callId, signal: scope.signal, output, ...ifUnchanged });
      } finally {
        scope.end();
        await stopFollowing?.();
        await output.close();
      }
    },
    close: async () => {
      await toolbox.close(CLOSE_GRACE_MS);
      await rm(spillFolder, { recursive: true, force: true });
    },
  };
}

/** The caller's signal and the outer time-out in one. */
function callScope(toolId: string, args: unknown, signal?: AbortSignal): { signal: AbortSignal; end: () => void } {
  const tool = findBuiltinTool(toolId);
  const timer = new AbortController();
  const timeoutMs = tool ? outerTimeoutMs(tool, args) : 0;
  const timeout = tool && setTimeout(() => timer.abort(timeoutReason(toolId, timeoutMs)), timeoutMs);
  const signals = signal ? [signal, timer.signal] : [timer.signal];
  return { signal: AbortSignal.any(signals), end: () => clearTimeout(timeout) };
}

/** Hands output on in order; the returned function delivers the rest and stops. */
function follow(output: OutputLog, onOutput: (chunk: Buffer) => void): () => Promise<void> {
  let offset = 0;
  let turn = Promise.resolve();
  const deliver = async (): Promise<void> => {
    for (;;) {
      const chunk = await output.read(offset, STREAM_BYTES);
      if (chunk.length === 0) return;
      offset += chunk.length;
      onOutput(chunk);
    }
  };
  const stop = output.onAppend(() => {
    turn = turn.then(deliver);
  });
  return async () => {
    stop();
    await turn.then(deliver);
  };
}

/** Bubblewrap around commands: the root writable, the rest of the machine read-only, own processes only. */
function findBubblewrap(root: string): string[] | undefined {
  const mounts = ['--ro-bind', '/', '/', '--dev', '/dev', '--proc', '/proc', '--tmpfs', '/tmp', '--bind', root, root];
  const argv = ['bwrap', ...mounts, '--unshare-pid', '--unshare-ipc', '--die-with-parent', '--'];
  const probe = spawnSync('bwrap', [...argv.slice(1), 'true'], { stdio: 'ignore' });
  return probe.status === 0 ? argv : undefined;
}
