import type { BindCommand } from './command';
import type { Accepted } from './decision';
import type { Head } from './head';

/** Projects of which a head remembers that the session was bound to them. */
const FORMER_MAX = 16;

/**
 * The session works somewhere else from its next run on. A run that is active goes on where it began: what it did so far
 * lies there, also for a runner that takes it over.
 */
export function bind(head: Head, { binding, context }: BindCommand): Accepted {
  const { run } = head;
  return {
    head: {
      ...head,
      binding,
      context: { ...head.context, ...context },
      ...formerOf(head, binding.project),
      ...(run ? { run: { ...run, binding: run.binding ?? head.binding } } : {}),
    },
    events: [{ event: { type: 'context', payload: context }, runId: null }],
    records: [],
    answer: { session_id: head.sessionId, project: binding.project },
  };
}

function formerOf({ binding, formerProjects = [] }: Head, next: string | null): Pick<Head, 'formerProjects'> {
  const before = binding.project === null ? [] : [binding.project];
  const former = [...formerProjects, ...before].filter((project) => project !== next);
  return former.length === 0 ? {} : { formerProjects: [...new Set(former)].slice(-FORMER_MAX) };
}

/** Where a run works, or else the session would. */
export function bindingOf({ run, binding }: Head): Head['binding'] {
  return run?.binding ?? binding;
}
