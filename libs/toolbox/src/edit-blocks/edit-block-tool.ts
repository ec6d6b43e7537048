import { z } from 'zod';
import { parseArguments } from '../arguments';
import { editResult, writeEdit } from '../files/edit-result';
import type { PathPolicy } from '../files/paths';
import type { FileChange } from '../files/replace-files';
import { readText, restoreLineEnds, withLineEnd } from '../files/text';
import { ToolFailure, type CallContext, type ToolOutcome } from '../outcome';
import { applyEditBlock } from './apply';
import { FORMAT_REMINDER, parseEditBlocks, type EditBlock } from './parse';
import { similarLines } from './similar';

const Arguments = z.preprocess(
  (value) => {
    if (typeof value === 'string') return { content: value };
    if (typeof value !== 'object' || value === null || 'content' in value) return value;
    const { blocks, ...others } = value as Record<string, unknown>;
    return { content: blocks, ...others };
  },
  z.object({
    content: z.string(),
    root: z.string().optional(),
    files: z.array(z.string()).nullish(),
    /** `get` checks the blocks without writing. */
    operation: z.enum(['get', 'set']).default('set'),
  }),
);

/** `aider_edit_block_tool` (ext §1.5): all blocks apply to copies first; files are written only when every one matched. */
export async function editBlockTool(args: unknown, paths: PathPolicy, call: CallContext): Promise<ToolOutcome> {
  const startedAt = performance.now();
  const edit = parseArguments('aider_edit_block_tool', Arguments, args);
  try {
    const blocks = parseEditBlocks(edit.content, edit.files ?? []);
    if (blocks.length === 0) throw new ToolFailure('No SEARCH/REPLACE blocks found.');
    refuseUnlisted(blocks, edit.files ?? []);
    const changes = await applyBlocks(blocks, paths, edit.root);
    const isChecking = edit.operation === 'get';
    const withoutDiff = summary(isChecking ? 'Validated' : 'Applied', blocks.length, changes);
    const result = editResult(changes, paths, { title: 'Aider Edit Blocks', withoutDiff });
    if (!isChecking) return await writeEdit(changes, result, call);
    return {
      status: 'ok',
      result: withoutDiff,
      changedFiles: [],
      durationMs: Math.round(performance.now() - startedAt),
    };
  } catch (error) {
    if (error instanceof ToolFailure) throw new ToolFailure(`${error.message}\n\n${FORMAT_REMINDER}`, { cause: error });
    throw error;
  }
}

function refuseUnlisted(blocks: readonly EditBlock[], files: readonly string[]): void {
  if (files.length === 0) return;
  const unlisted = blocks.find((block) => !files.includes(block.file));
  if (unlisted)
    throw new ToolFailure(`${unlisted.file} is not in the list of files this call may edit: ${files.join(', ')}.`);
}

interface Copy extends FileChange {
  /** The edited copy with `\n` line ends. */
  current: string | null;
}

async function applyBlocks(blocks: readonly EditBlock[], paths: PathPolicy, root?: string): Promise<FileChange[]> {
  const copies = new Map<string, Copy>();
  for (const block of blocks) {
    const absolute = paths.resolve(block.file, root);
    const copy = copies.get(absolute) ?? (await openCopy(absolute, block.file));
    copies.set(absolute, copy);
    copy.current = applyTo(copy.current, block);
  }
  return [...copies.values()].map(({ path, before, current }) => ({
    path,
    before,
    after: before === null ? (current ?? '') : restoreLineEnds(before, current ?? ''),
  }));
}

async function openCopy(absolute: string, shown: string): Promise<Copy> {
  const before = await readText(absolute, shown);
  return { path: absolute, before, after: '', current: before === null ? null : withLineEnd(before, '\n') };
}

function applyTo(content: string | null, block: EditBlock): string {
  const applied = content === null && block.search.trim() !== '' ? undefined : applyEditBlock(content ?? '', block);
  if (applied !== undefined) return applied;
  const hint = content === null ? undefined : similarLines(block.search, content);
  const message = `SEARCH block failed to match in ${block.file}.`;
  throw new ToolFailure(hint === undefined ? message : `${message}\nDid you mean to match:\n${hint}`);
}

function summary(verb: string, blocks: number, changes: readonly FileChange[]): string {
  const created = changes.filter((change) => change.before === null).length;
  const text = `${verb} ${blocks} SEARCH/REPLACE block(s) across ${changes.length} file(s).`;
  return created > 0 ? `${text} Created ${created} file(s).` : text;
}
