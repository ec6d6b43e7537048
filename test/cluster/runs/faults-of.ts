import { COUNT_FILE, type Followed } from './script';

interface StoredEvent {
  type: string;
  seq: number;
  payload: {
    done_reason?: string;
    error?: string;
    tool_id?: string;
    tool_input?: unknown;
    result?: string | null;
    success?: boolean;
  };
}

/** What is wrong with a run and with what its client saw of it; nothing, where all is well. */
export function faultsOf(run: Followed, notes: readonly string[]): string[] {
  const events = run.stored.map((text) => JSON.parse(text) as StoredEvent);
  const faults = [...checkEnd(events), ...checkStream(run), ...checkEffects(run.name, events, notes)];
  if (!run.verified) faults.push('its stored log is not in order');
  return faults.map((fault) => `${run.name} (${run.sessionId}): ${fault}`);
}

function checkEnd(events: readonly StoredEvent[]): string[] {
  const ends = events.filter(({ type }) => type === 'completion');
  if (ends.length !== 1) return [`it has ${ends.length} terminal events`];
  const [{ done_reason: reason, error } = {}] = ends.map(({ payload }) => payload);
  return reason === 'completed' ? [] : [`it ended as ${reason}: ${error}`];
}

/** The pieces of all connections are what is stored, once and in order. */
function checkStream({ streamed, stored }: Followed): string[] {
  if (streamed.length === stored.length && streamed.every((text, index) => text === stored[index])) return [];
  const first = stored.findIndex((text, index) => text !== streamed[index]);
  return [
    `its client saw ${streamed.length} of ${stored.length} events; the first that differs: ${streamed[first]?.slice(0, 300)} where ${stored[first]?.slice(0, 300)} is stored`,
  ];
}

/** No call failed, and each took effect once, although none of them may be repeated. */
function checkEffects(name: string, events: readonly StoredEvent[], notes: readonly string[]): string[] {
  const results = events.filter(({ type }) => type === 'tool_result').map(({ payload }) => payload);
  const counted = results.find(({ tool_input: input }) => JSON.stringify(input).includes(`cat ${COUNT_FILE}`));
  const written = (counted?.result ?? '').match(/run-[a-z]+-\d+-\d+/g) ?? [];
  const effects = [...notes.filter((token) => token.startsWith(`${name}-`)), ...written];
  return results.flatMap((payload) => {
    if (!payload.success) return [`a call of ${payload.tool_id} failed: ${JSON.stringify(payload).slice(0, 300)}`];
    const token = /run-[a-z]+-\d+-\d+/.exec(JSON.stringify(payload.tool_input))?.[0];
    const times = effects.filter((effect) => effect === token).length;
    return token === undefined || times === 1 ? [] : [`${token} took effect ${times} times`];
  });
}
