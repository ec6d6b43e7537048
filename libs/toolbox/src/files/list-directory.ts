import { readdir, stat } from 'node:fs/promises';
import path from 'node:path';
import ignore, { type Ignore } from 'ignore';
import { z } from 'zod';
import { lenientInteger, parseArguments } from '../arguments';
import { ToolFailure, type CallContext, type ToolOutcome } from '../outcome';
import { readWhole } from './open-file';
import { isInside, type PathPolicy } from './paths';

const DEFAULT_MAX_ENTRIES = 5_000;
const MAX_ENTRIES = 50_000;
/** A larger `.gitignore` is none. */
const MAX_RULES_BYTES = 256 * 1024;
const ALWAYS_SKIPPED = new Set(['.git', 'node_modules']);

const Arguments = z.preprocess(
  (value) => (typeof value === 'string' ? { path: value } : value),
  z.object({
    path: z.string().nullish(),
    root: z.string().optional(),
    max_entries: lenientInteger(DEFAULT_MAX_ENTRIES),
  }),
);

/** The rules of one `.gitignore`, for paths below its folder. */
interface IgnoreRules {
  folder: string;
  rules: Ignore;
}

/** `aider_list_dir_tool` (ext §1.4): files below a folder, sorted, without what git ignores. */
export async function listDirectoryTool(args: unknown, paths: PathPolicy, call: CallContext): Promise<ToolOutcome> {
  const startedAt = performance.now();
  const parsed = parseArguments('aider_list_dir_tool', Arguments, args);
  const given = parsed.path?.trim() || '.';
  const base = parsed.root === undefined ? paths.root : paths.resolve(parsed.root);
  const start = paths.resolve(given, parsed.root);
  const maxEntries = parsed.max_entries > 0 ? Math.min(parsed.max_entries, MAX_ENTRIES) : DEFAULT_MAX_ENTRIES;
  const walk = new Walk({ base, paths, maxEntries, signal: call.signal });
  await walk.from(start, given);
  const result = {
    kind: 'dir',
    path: given,
    entries: walk.entries,
    ...(walk.isTruncated ? { truncated: true } : {}),
  };
  return { status: 'ok', result, changedFiles: [], durationMs: Math.round(performance.now() - startedAt) };
}

interface WalkOptions {
  base: string;
  paths: PathPolicy;
  maxEntries: number;
  signal: AbortSignal;
}

class Walk {
  readonly entries: string[] = [];
  isTruncated = false;

  constructor(private readonly options: WalkOptions) {}

  async from(start: string, given: string): Promise<void> {
    const facts = await stat(start).catch((error: unknown) => {
      throw new ToolFailure(`${given}: no such file or directory`, { cause: error });
    });
    if (facts.isDirectory()) await this.folder(start, await this.rulesAbove(start));
    else this.add(start);
  }

  private async rulesAbove(start: string): Promise<IgnoreRules[]> {
    if (!isInside(start, this.options.base)) return [];
    const rules: IgnoreRules[] = [];
    let folder = this.options.base;
    for (const part of path.relative(this.options.base, start).split(path.sep).filter(Boolean)) {
      rules.push(...(await rulesIn(folder)));
      folder = path.join(folder, part);
    }
    return rules;
  }

  private async folder(folder: string, inherited: readonly IgnoreRules[]): Promise<void> {
    this.options.signal.throwIfAborted();
    // An unreadable folder is left out, like an entry outside.
    const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
    const rules = [...inherited, ...(await rulesIn(folder))];
    const named = entries
      .filter((entry) => !ALWAYS_SKIPPED.has(entry.name))
      // The order of whole paths: a folder sorts as `name/`.
      .map((entry) => ({ entry, key: entry.isDirectory() ? `${entry.name}/` : entry.name }))
      .sort((a, b) => (a.key < b.key ? -1 : 1));
    for (const { entry } of named) {
      if (this.isTruncated) return;
      const absolute = path.join(folder, entry.name);
      if (isIgnored(absolute, entry.isDirectory(), rules)) continue;
      if (entry.isDirectory()) await this.folder(absolute, rules);
      else if (entry.isFile() || (entry.isSymbolicLink() && (await this.isFileLink(absolute)))) this.add(absolute);
    }
  }

  /** Links to folders are not followed: they may lead in circles. */
  private async isFileLink(absolute: string): Promise<boolean> {
    if (!this.options.paths.permits(absolute)) return false;
    const facts = await stat(absolute).catch(() => undefined);
    return facts?.isFile() ?? false;
  }

  private add(absolute: string): void {
    if (this.entries.length >= this.options.maxEntries) {
      this.isTruncated = true;
      return;
    }
    this.entries.push(path.relative(this.options.base, absolute) || path.basename(absolute));
  }
}

async function rulesIn(folder: string): Promise<IgnoreRules[]> {
  const file = path.join(folder, '.gitignore');
  const bytes = await readWhole(file, file, MAX_RULES_BYTES).catch(() => undefined);
  return bytes === undefined ? [] : [{ folder, rules: ignore().add(bytes.toString('utf8')) }];
}

function isIgnored(absolute: string, isFolder: boolean, rules: readonly IgnoreRules[]): boolean {
  let isHidden = false;
  for (const { folder, rules: own } of rules) {
    const relative = path.relative(folder, absolute).split(path.sep).join('/');
    const verdict = own.test(isFolder ? `${relative}/` : relative);
    if (verdict.ignored) isHidden = true;
    else if (verdict.unignored) isHidden = false;
  }
  return isHidden;
}
