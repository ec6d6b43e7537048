import { FailedPreconditionError } from '@margay/errors';
import type { Remote } from './repositories';

/** A project as it can be named. */
export interface Named {
  /** How bindings name it. */
  project: string;
  /** What people call it. */
  name: string;
  remote?: Remote | undefined;
}

const CANDIDATES_MAX = 20;

/** The longest form first. */
const formsOf = ({ host, owner, name }: Remote): string[] => [`${host}/${owner}/${name}`, `${owner}/${name}`, name];

/**
 * The one project that a text means: by its name, else by its repository, as `host/owner/repo`, `owner/repo` or `repo`.
 * @returns undefined: none
 * @throws FailedPreconditionError `ambiguous_project`, whose details have the candidates
 */
export function meantBy(text: string, projects: readonly Named[]): Named | undefined {
  const named = projects.filter(({ name }) => name === text);
  if (named.length > 0) return only(text, named);
  const wanted = text.toLowerCase();
  return only(
    text,
    projects.filter(({ remote }) => remote && formsOf(remote).some((form) => form.toLowerCase() === wanted)),
  );
}

/** Forms of a project's repository that mean it and no other project. */
export function aliasesOf(project: Named, projects: readonly Named[]): string[] {
  if (!project.remote) return [];
  return formsOf(project.remote).filter((form) => {
    try {
      return meantBy(form, projects) === project;
    } catch {
      return false; // it means several
    }
  });
}

function only(text: string, found: readonly Named[]): Named | undefined {
  if (found.length <= 1) return found[0];
  const candidates = distinct(found).slice(0, CANDIDATES_MAX);
  throw new FailedPreconditionError(
    'ambiguous_project',
    `'${text.slice(0, 64)}' means more than one project; name one of ${candidates.join(', ')}.`,
    { details: { candidates } },
  );
}

/** The shortest words that tell them apart. */
function distinct(found: readonly Named[]): string[] {
  for (const form of [1, 0]) {
    const words = found.map(({ remote }) => remote && formsOf(remote)[form]);
    if (words.every((word) => word !== undefined) && new Set(words).size === found.length) return words as string[];
  }
  return found.map(({ project }) => project);
}
