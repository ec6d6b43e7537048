import { z } from 'zod';
import { parseArguments } from '../arguments';
import { ToolFailure, type CallContext, type ToolOutcome } from '../outcome';
import { editResult, writeEdit } from './edit-result';
import type { PathPolicy } from './paths';
import { countOf, dominantLineEnd, readText, withLineEnd } from './text';

const Arguments = z.object({
  file_path: z.string().min(1),
  old_string: z.string(),
  new_string: z.string(),
  replace_all: z.boolean().nullish(),
  root: z.string().optional(),
});

/** `file_edit_tool` (ext §1.6): replaces one exact string, or appends, or creates. */
export async function fileEditTool(args: unknown, paths: PathPolicy, call: CallContext): Promise<ToolOutcome> {
  const edit = parseArguments('file_edit_tool', Arguments, args);
  const absolute = paths.resolve(edit.file_path, edit.root);
  const before = await readText(absolute, edit.file_path);
  const after = applyStringEdit(before, {
    shown: edit.file_path,
    oldString: edit.old_string,
    newString: edit.new_string,
    replaceAll: edit.replace_all ?? false,
  });
  const changes = [{ path: absolute, before, after }];
  const withoutDiff = `Applied edit to ${edit.file_path} (no visible diff).`;
  return writeEdit(changes, editResult(changes, paths, { title: 'File Edit', withoutDiff }), call);
}

export interface StringEdit {
  /** The path as the model gave it, for messages. */
  shown: string;
  oldString: string;
  newString: string;
  replaceAll: boolean;
}

/** The content after the edit; `before` null = there is no file. Line ends of the file are kept. */
export function applyStringEdit(before: string | null, edit: StringEdit): string {
  const end = dominantLineEnd(before ?? '');
  const newString = before === null ? edit.newString : withFileLineEnd(edit.newString, before, end);
  if (edit.oldString === '') return (before ?? '') + newString;
  if (before === null) throw new ToolFailure(notFound(edit.shown));
  const candidates = [withLineEnd(edit.oldString, end), edit.oldString];
  const oldString = candidates.find((candidate) => before.includes(candidate));
  if (oldString === undefined) throw new ToolFailure(notFound(edit.shown));
  const count = countOf(before, oldString);
  if (edit.replaceAll) return before.replaceAll(oldString, () => newString);
  if (count > 1) {
    throw new ToolFailure(
      `Found ${count} occurrences of old_string in ${edit.shown}. Set replace_all=true to replace all, or provide a more specific match.`,
    );
  }
  return before.replace(oldString, () => newString);
}

function withFileLineEnd(text: string, before: string, end: '\n' | '\r\n'): string {
  return before.includes('\n') ? withLineEnd(text, end) : text;
}

function notFound(shown: string): string {
  return `old_string not found in ${shown}. Ensure the string matches exactly (including whitespace and newlines).`;
}
