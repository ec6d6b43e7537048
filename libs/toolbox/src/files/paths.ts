import { realpathSync } from 'node:fs';
import path from 'node:path';
import { ToolFailure } from '../outcome';

export interface PathPolicyOptions {
  /** Where relative paths start; always allowed. */
  root: string;
  /** Further folders that may be read and written. */
  allowedRoots?: readonly string[];
  /**
   * `follow`: a link inside an allowed root may lead out of it (ext §1.3); right where a sandbox is the wall.
   * `refuse`: what a link leads to must lie under an allowed root too; right where this check is the only wall.
   */
  escapingLinks: 'follow' | 'refuse';
}

/** Decides which paths the file tools may touch (ext §1.3, "safe path"). */
export class PathPolicy {
  readonly root: string;
  private readonly logicalRoots: string[];
  private readonly resolvedRoots: string[];

  constructor(private readonly options: PathPolicyOptions) {
    this.root = path.resolve(options.root);
    this.logicalRoots = [this.root, ...(options.allowedRoots ?? []).map((root) => path.resolve(root))];
    this.resolvedRoots = this.logicalRoots.map(resolveExisting);
  }

  /** The absolute path to use for `given`; throws `ToolFailure` when it lies outside every allowed root. */
  resolve(given: string, base?: string): string {
    const start = base === undefined ? this.root : this.check(base, this.root);
    return this.check(given, start);
  }

  /** Whether an existing entry, links followed, may be shown in a listing. */
  permits(absolute: string): boolean {
    try {
      this.check(absolute, this.root);
      return true;
    } catch (error) {
      if (error instanceof ToolFailure) return false;
      throw error;
    }
  }

  /** The path as results show it: relative to the root where it lies inside. */
  display(absolute: string): string {
    for (const root of [this.root, resolveExisting(this.root)]) {
      if (isInside(absolute, root)) return path.relative(root, absolute) || '.';
    }
    return absolute;
  }

  private check(given: string, base: string): string {
    if (given.includes('\0')) throw outside(given);
    const logical = path.resolve(base, given);
    const resolved = resolveExisting(logical);
    if (this.resolvedRoots.some((root) => isInside(resolved, root))) return resolved;
    const isLogicallyInside = this.logicalRoots.some((root) => isInside(logical, root));
    if (isLogicallyInside && this.options.escapingLinks === 'follow') return logical;
    throw outside(given);
  }
}

function outside(given: string): ToolFailure {
  return new ToolFailure(`Path '${given}' resolves outside all allowed project roots.`);
}

export function isInside(candidate: string, root: string): boolean {
  return candidate === root || candidate.startsWith(root.endsWith(path.sep) ? root : root + path.sep);
}

/** Resolves every link of the part that exists and keeps the rest, so new files have a resolved path too. */
function resolveExisting(absolute: string): string {
  const missing: string[] = [];
  let current = absolute;
  for (;;) {
    try {
      return path.join(realpathSync(current), ...missing);
    } catch {
      const parent = path.dirname(current);
      if (parent === current) return absolute;
      missing.unshift(path.basename(current));
      current = parent;
    }
  }
}
