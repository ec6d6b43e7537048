const HEADER_BYTES = 16;
const OP_MSG = 2013;
const WRITES = new Set(['insert', 'update', 'delete', 'findAndModify']);

/** One message of the MongoDB wire protocol. */
export interface WireMessage {
  requestId: number;
  responseTo: number;
  /** Name of the command, e.g. `insert`; empty in replies of other kinds. */
  command: string;
  bytes: Buffer;
}

/** Cuts a stream of bytes into messages. */
export class MessageReader {
  private rest: Buffer = Buffer.alloc(0);

  *read(chunk: Buffer): Iterable<WireMessage> {
    this.rest = this.rest.length === 0 ? chunk : Buffer.concat([this.rest, chunk]);
    while (this.rest.length >= HEADER_BYTES) {
      const length = this.rest.readInt32LE(0);
      if (this.rest.length < length) return;
      const bytes = this.rest.subarray(0, length);
      this.rest = this.rest.subarray(length);
      yield { requestId: bytes.readInt32LE(4), responseTo: bytes.readInt32LE(8), command: commandOf(bytes), bytes };
    }
  }
}

/** Whether it changes something, so that its reply is an acknowledgement. */
export function isWrite({ command }: WireMessage): boolean {
  return WRITES.has(command);
}

/** In an OP_MSG the first field of the body's document bears the command's name. */
function commandOf(bytes: Buffer): string {
  const [flagBytes, kindBytes, lengthBytes, typeBytes] = [4, 1, 4, 1];
  const start = HEADER_BYTES + flagBytes + kindBytes + lengthBytes + typeBytes;
  if (bytes.readInt32LE(12) !== OP_MSG || bytes[HEADER_BYTES + flagBytes] !== 0) return '';
  const end = bytes.indexOf(0, start);
  return end === -1 ? '' : bytes.toString('latin1', start, end);
}
