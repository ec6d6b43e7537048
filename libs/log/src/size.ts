import type { Command } from './command';
import { packRecord } from './references';

/** A batch closes before the command that would pass this; UTF-8 bytes. */
export const COMMIT_MAX_BYTES = 512 * 1024;

export function jsonBytes(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value) ?? '');
}

/** Bytes of private records beside these payloads: a text that a payload holds whole is stored once. */
export function packedBytes(records: readonly object[], payloads: readonly object[]): number {
  return records.reduce((sum, record) => sum + Buffer.byteLength(packRecord(record, payloads)), 0);
}

/** Bytes that a command takes in a commit, or a little more. */
export function commandBytes(command: Command): number {
  const bytes = jsonBytes(command);
  if (bytes <= COMMIT_MAX_BYTES || !('records' in command)) return bytes;
  const { events, records, ...rest } = command;
  const payloads = events.map(({ payload }) => payload);
  return jsonBytes(rest) + jsonBytes(events) + packedBytes(records, payloads);
}
