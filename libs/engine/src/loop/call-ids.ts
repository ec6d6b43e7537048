/** `<sessionId>.<epoch>.<step>.<index>`: ours, fixed before anything is stored. */
export function callId(sessionId: string, epoch: number, step: number, index: number): string {
  return `${sessionId}.${epoch}.${step}.${index}`;
}

/** The epoch whose owner committed the call; NaN for ids of another form. */
export function epochOfCall(id: string): number {
  return Number(id.split('.').at(-3));
}

/** Position of the call in its answer, from 0; NaN for ids of another form. */
export function indexOfCall(id: string): number {
  return Number(id.split('.').at(-1));
}
