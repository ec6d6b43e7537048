import { ToolDescriptor } from '@margay/contracts';
import type { z } from 'zod';

type DescriptorInput = Omit<z.input<typeof ToolDescriptor>, 'name'>;

/** Of what a command prints, the end matters most. */
const SHELL_TRUNCATION = { head: 1 / 4, tail: 3 / 4 };

const DESCRIPTORS: DescriptorInput[] = [
  {
    tool_id: 'read_file',
    description:
      'Read a text file of the workspace. Returns its lines numbered from 1. Long files are read in parts with offset and limit.',
    schema: object(['path'], {
      path: text('Path of the file, relative to the workspace or absolute inside it.'),
      offset: integer('Lines to skip, counted from 0.', { default: 0, minimum: 0 }),
      limit: integer('Most lines to return; 0 or less returns all.', { default: 2000 }),
    }),
    operation: 'get',
    effect: 'pure',
    read_only: true,
    capability: 'read',
    max_result_chars: 200_000,
    guidance:
      'Read a file before you edit it. Line numbers in the result are not part of the file. Several files can be read in one turn.',
  },
  {
    tool_id: 'aider_list_dir_tool',
    description:
      'List the files below a folder of the workspace, recursively and sorted, leaving out what git ignores.',
    schema: object([], {
      path: text('Folder to list; empty = the workspace.'),
      max_entries: integer('Most entries to return.', { default: 5000, minimum: 1 }),
    }),
    operation: 'get',
    effect: 'pure',
    read_only: true,
    capability: 'read',
    max_result_chars: 30_000,
    guidance: 'Use it to learn the layout of a project; to search in contents use the shell with grep or rg.',
  },
  {
    tool_id: 'aider_shell_tool',
    description:
      'Run a shell command in the workspace and return its merged output and exit code. There is no input: commands that prompt see end of file.',
    schema: object(['command'], {
      command: text('The command line, run by bash.'),
      cwd: text('Folder to run in; default the workspace.'),
      timeout: { type: 'number', minimum: 1, maximum: 600, default: 115, description: 'Seconds until it is ended.' },
      run_in_background: { type: 'boolean', default: false, description: 'Return at once with a shell_id.' },
      tty: { type: 'boolean', default: false, description: 'Give the command a terminal.' },
    }),
    operation: 'set',
    effect: 'unkeyed',
    concurrency_safe: false,
    capability: 'execute',
    interrupt_behavior: 'cancel',
    max_result_chars: 30_000,
    truncate: SHELL_TRUNCATION,
    timeout: 120,
    timeout_argument: 'timeout',
    guidance:
      'Each call starts a new shell in the workspace: state such as the current folder is not kept between calls. Start servers and watchers with run_in_background and follow them with shell_session_tool. Use non-interactive flags.',
  },
  {
    tool_id: 'shell_session_tool',
    description: 'Read from, write to, end or list the background shells that aider_shell_tool started.',
    schema: object(['operation'], {
      operation: { type: 'string', enum: ['read', 'write', 'kill', 'list'] },
      shell_id: text('Which shell; not for list.'),
      input: text('Text to write.'),
      newline: { type: 'boolean', default: true, description: 'Add a line end to the input.' },
      cursor: integer('Return output from this character on; use the cursor of the last reading.', { minimum: 0 }),
      filter: text('Regular expression; only matching lines are shown.'),
      wait_ms: integer('Wait this long for new output.', { minimum: 0, maximum: 30_000, default: 0 }),
    }),
    operation: 'set',
    effect: 'unkeyed',
    concurrency_safe: false,
    capability: 'execute',
    interrupt_behavior: 'cancel',
    max_result_chars: 30_000,
    truncate: SHELL_TRUNCATION,
  },
  {
    tool_id: 'aider_edit_block_tool',
    description:
      'Edit files with SEARCH/REPLACE blocks. Each block names a file, the exact lines to find and the lines to put there; an empty SEARCH part appends or creates the file. Nothing is written unless every block matches.',
    schema: object(['content'], {
      content: text(
        'One or more blocks:\npath/to/file\n```\n<<<<<<< SEARCH\nold lines\n=======\nnew lines\n>>>>>>> REPLACE\n```',
      ),
      files: { type: 'array', items: { type: 'string' }, description: 'If given, only these files may be edited.' },
    }),
    operation: 'set',
    effect: 'keyed',
    concurrency_safe: false,
    capability: 'write',
    max_result_chars: 2_000,
    guidance:
      'SEARCH must repeat whole lines of the file exactly, with their indentation; keep blocks small, just enough to be unique. Several blocks, also for several files, fit in one call.',
  },
  {
    tool_id: 'file_edit_tool',
    description:
      'Replace an exact string in a file. An empty old_string appends to the file or creates it. The string must occur exactly once unless replace_all is set.',
    schema: object(['file_path', 'old_string', 'new_string'], {
      file_path: text('Path of the file.'),
      old_string: text('The exact text to replace.'),
      new_string: text('The text to put there.'),
      replace_all: { type: 'boolean', default: false, description: 'Replace every occurrence.' },
    }),
    operation: 'set',
    effect: 'keyed',
    concurrency_safe: false,
    capability: 'write',
    max_result_chars: 2_000,
    guidance: 'Give enough surrounding lines in old_string to make it unique, with exact whitespace.',
  },
];

/** The tools this package implements. Of the two edit tools the engine binds one per model. */
export const BUILTIN_TOOLS: readonly ToolDescriptor[] = DESCRIPTORS.map((input) =>
  ToolDescriptor.parse({ ...input, name: input.tool_id }),
);

export function findBuiltinTool(toolId: string): ToolDescriptor | undefined {
  return BUILTIN_TOOLS.find((tool) => tool.tool_id === toolId);
}

const MAX_TIMEOUT_S = 600;
/** The outer time-out lets a command be ended from inside first. */
const TIMEOUT_MARGIN_S = 5;

/** The outer time-out of one call: the tool's own, raised by its time-out argument (ext §1.7). */
export function outerTimeoutMs(tool: ToolDescriptor, args: unknown): number {
  const wanted =
    tool.timeout_argument !== null && typeof args === 'object' && args !== null
      ? (args as Record<string, unknown>)[tool.timeout_argument]
      : undefined;
  const raised = typeof wanted === 'number' ? Math.min(wanted, MAX_TIMEOUT_S) + TIMEOUT_MARGIN_S : 0;
  return Math.max(tool.timeout, raised) * 1_000;
}

function object(required: string[], properties: Record<string, Record<string, unknown>>): Record<string, unknown> {
  return { type: 'object', properties, required, additionalProperties: false };
}

function text(description: string): Record<string, unknown> {
  return { type: 'string', description };
}

function integer(description: string, more: Record<string, unknown> = {}): Record<string, unknown> {
  return { type: 'integer', description, ...more };
}
