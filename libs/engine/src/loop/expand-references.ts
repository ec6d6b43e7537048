import { untilAborted } from '../abort';
import { attachmentsIn } from '../context/attachments';
import type { AgentRun } from './agent-run';
import type { Carried } from './writer';

/** At the start or after white space: `bob@host` is none. */
const REFERENCE = /(^|\s)@\S/;

/**
 * Puts what the references of the opening message lead to in their places, once, as it is now: the run's first commit keeps
 * it, and the public event shows what was said (rulings, 36). What fails leaves the words as they are.
 */
export async function expandReferences(run: AgentRun, carried: Carried): Promise<void> {
  const { text, attachments } = run.state.opening;
  if (!REFERENCE.test(text)) return;
  const named = attachmentsIn(attachments).map(({ filename, stored_name }) => ({ filename, stored_name }));
  const said = { text, attachments: named };
  const expanding = run.ports.tools.expandReferences(said, run.stop).catch(() => text);
  const expanded = await untilAborted(expanding, run.stop);
  if (expanded !== text) run.record(carried, { kind: 'expansion', agentId: run.agentId, text: expanded });
}
