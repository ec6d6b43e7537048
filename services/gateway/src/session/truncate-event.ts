const FIELD_MAX_CHARS = 2_000;
const FIELDS = ['result', 'tool_input', 'detail', 'error'];

/** A stored event with its long fields cut; objects become the cut text of their JSON. */
export function truncateEvent(json: string): string {
  if (json.length <= FIELD_MAX_CHARS) return json;
  const event = JSON.parse(json) as { payload: Record<string, unknown> };
  const { payload } = event;
  for (const field of FIELDS) {
    const value = payload[field];
    const text = typeof value === 'string' ? value : (JSON.stringify(value) as string | undefined);
    if (text === undefined || text.length <= FIELD_MAX_CHARS) continue;
    payload[field] = text.slice(0, FIELD_MAX_CHARS).toWellFormed();
    payload[`${field}_truncated`] = true;
  }
  return JSON.stringify(event);
}
