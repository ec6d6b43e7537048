import { editBlockTool } from './edit-blocks/edit-block-tool';
import { fileEditTool } from './files/file-edit';
import { listDirectoryTool } from './files/list-directory';
import type { PathPolicy } from './files/paths';
import { readFileTool } from './files/read-file';
import { ToolFailure, type CallContext, type ToolOutcome } from './outcome';
import type { ShellHost } from './shell/shell-host';
import { shellSessionTool } from './shell/shell-session-tool';
import { shellTool } from './shell/shell-tool';

type Implementation = (args: unknown, call: CallContext) => Promise<ToolOutcome>;

/** The built-in tools on one workspace. */
export class Toolbox {
  private readonly tools: ReadonlyMap<string, Implementation>;

  constructor(
    paths: PathPolicy,
    private readonly shell: ShellHost,
  ) {
    this.tools = new Map<string, Implementation>([
      ['read_file', (args, call) => readFileTool(args, paths, call)],
      ['aider_list_dir_tool', (args, call) => listDirectoryTool(args, paths, call)],
      ['aider_shell_tool', (args, call) => shellTool(args, paths, call, shell)],
      ['shell_session_tool', (args, call) => shellSessionTool(args, call, shell)],
      ['aider_edit_block_tool', (args, call) => editBlockTool(args, paths, call)],
      ['file_edit_tool', (args, call) => fileEditTool(args, paths, call)],
    ]);
  }

  get toolIds(): string[] {
    return [...this.tools.keys()];
  }

  /**
   * Runs one call to its end. Never rejects: a failing tool is an `error` outcome, an aborted one `timed_out` when the
   * signal's reason is a `TimeoutError`, else `cancelled`.
   */
  async execute(toolId: string, args: unknown, call: CallContext): Promise<ToolOutcome> {
    const startedAt = performance.now();
    const ended = (status: ToolOutcome['status'], result: string): ToolOutcome => ({
      status,
      result,
      changedFiles: [],
      durationMs: Math.round(performance.now() - startedAt),
    });
    const implementation = this.tools.get(toolId);
    if (!implementation) return ended('error', 'Tool not available');
    try {
      return await implementation(args, call);
    } catch (error) {
      if (call.signal.aborted) return this.aborted(toolId, call, ended);
      if (error instanceof ToolFailure) return ended('error', error.message);
      return ended('error', describe(error));
    }
  }

  /** Ends what outlived the calls that started it, of those calls that are meant. */
  async closeBackground(isMeant: (callId: string) => boolean, graceMs: number): Promise<void> {
    await this.shell.killBackground(isMeant, graceMs);
  }

  /** Ends every process the tools started. */
  async close(graceMs: number): Promise<void> {
    await this.shell.killAll(graceMs);
  }

  private aborted(
    toolId: string,
    call: CallContext,
    ended: (status: ToolOutcome['status'], result: string) => ToolOutcome,
  ): ToolOutcome {
    const soFar = call.output.totalBytes > 0 ? `\nOutput so far:\n${call.output.preview().text}` : '';
    const reason = call.signal.reason as Partial<Error> | undefined;
    if (reason?.name === 'TimeoutError') {
      return {
        ...ended('timed_out', `${reason.message || `Tool '${toolId}' timed out`}${soFar}`),
        limitHit: 'wall_time',
      };
    }
    return ended('cancelled', `Tool '${toolId}' was cancelled.${soFar}`);
  }
}

/** System errors in words a model can act on; their message names the path and what was tried. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code } = error as NodeJS.ErrnoException;
  if (code === 'ENOSPC' || code === 'EDQUOT')
    return `workspace_full: no space is left in the workspace (${error.message})`;
  return error.message;
}

/** The reason to abort a call with when its outer time-out passes. */
export function timeoutReason(toolId: string, timeoutMs: number): DOMException {
  return new DOMException(`Tool '${toolId}' timed out after ${timeoutMs / 1_000}s`, 'TimeoutError');
}
