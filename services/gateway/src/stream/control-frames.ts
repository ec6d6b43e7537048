export const STREAM_END = 'data: {"type":"stream_end"}\n\n';

/** Flat, without `ts` and `payload`: it is never stored. */
export function stateFrame(stateJson: string): string {
  return `data: {"type":"session_state",${stateJson.trimStart().slice(1)}\n\n`;
}

/** The same on the user's feed, which tells of many sessions. */
export function userStateFrame(sessionId: string, stateJson: string): string {
  return `event: user\ndata: {"type":"session_state","session_id":"${sessionId}",${stateJson.trimStart().slice(1)}\n\n`;
}

/** Unknown, foreign and private sessions are not told apart. */
export function refusalFrame(sessionId: string): string {
  return `event: ${sessionId}\ndata: {"type":"error","code":"session_not_found"}\n\n`;
}
