/** A public event, as far as it is checked. */
export interface StoredEvent {
  type: string;
  seq: number;
  ts: string;
  run_id?: string;
  payload: {
    tool_id?: string;
    tool_input?: unknown;
    tool_call_id?: string;
    success?: boolean;
    done_reason?: string;
    failure_reason?: string;
    error?: string;
  };
}
