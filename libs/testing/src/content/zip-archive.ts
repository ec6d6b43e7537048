import { crc32 } from 'node:zlib';

export interface ZipEntry {
  name: string;
  content?: string | Buffer;
  /** As Unix has it, type included; 0 = none. */
  mode?: number;
  /** What it claims to be unpacked, if that is a lie. */
  claimed?: number;
}

/** For specs: a zip archive, also such as no program would make. Nothing is compressed. */
export function zipOf(entries: readonly ZipEntry[]): Buffer {
  const bodies: Buffer[] = [];
  const listed: Buffer[] = [];
  let offset = 0;
  for (const { name, content = '', mode = 0o100644, claimed } of entries) {
    const bytes = Buffer.from(content);
    const [text, size] = [Buffer.from(name), claimed ?? bytes.length];
    const facts = Buffer.alloc(26);
    facts.writeUInt16LE(20, 0);
    facts.writeUInt16LE(0x0800, 2);
    facts.writeUInt32LE(crc32(bytes), 10);
    facts.writeUInt32LE(bytes.length, 14);
    facts.writeUInt32LE(size, 18);
    facts.writeUInt16LE(text.length, 22);
    const body = Buffer.concat([Buffer.from('PK\x03\x04'), facts, text, bytes]);
    const tail = Buffer.alloc(14);
    tail.writeUInt32LE((mode << 16) >>> 0, 6);
    tail.writeUInt32LE(offset, 10);
    listed.push(Buffer.concat([Buffer.from('PK\x01\x02'), Buffer.from([20, 3]), facts, tail, text]));
    bodies.push(body);
    offset += body.length;
  }
  const directory = Buffer.concat(listed);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(entries.length, 4);
  end.writeUInt16LE(entries.length, 6);
  end.writeUInt32LE(directory.length, 8);
  end.writeUInt32LE(offset, 12);
  return Buffer.concat([...bodies, directory, Buffer.from('PK\x05\x06'), end]);
}
