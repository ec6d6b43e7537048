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
  return only(text, meaningsIn(projects)(text));
}

/** Tells the forms of a project's repository that mean it and no other of these projects. */
export function aliasesIn(projects: readonly Named[]): (project: Named) => string[] {
  const meanings = meaningsIn(projects);
  return (project) => {
    const forms = project.remote ? formsOf(project.remote) : [];
    return forms.filter((form) => {
      const meant = meanings(form);
      return meant.length === 1 && meant[0] === project;
    });
  };
}

/** All that a text may mean. Made once for many questions: a tenant has hundreds of projects. */
function meaningsIn(projects: readonly Named[]): (text: string) => readonly Named[] {
  const byName = new Map<string, Named[]>();
  const byForm = new Map<string, Named[]>();
  const note = (known: Map<string, Named[]>, key: string, project: Named) => {
    const found = known.get(key);
    if (found) found.push(project);
    else known.set(key, [project]);
  };
  for (const project of projects) {
    note(byName, project.name, project);
    for (const form of project.remote ? formsOf(project.remote) : []) note(byForm, form.toLowerCase(), project);
  }
  return (text) => byName.get(text) ?? byForm.get(text.toLowerCase()) ?? [];
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
