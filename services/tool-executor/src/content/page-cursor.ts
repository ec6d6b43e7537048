import { InvalidArgumentError } from '@margay/errors';
import { z } from 'zod';

const Cursor = z.tuple([z.number().int(), z.string().regex(/^[0-9a-f]{32}$/)]);

/** Where the next page begins. It only skips: what a caller may see is decided for each page anew. */
export function writeCursor({ createdAt, _id }: { createdAt: Date; _id: string }): string {
  return Buffer.from(JSON.stringify([createdAt.getTime(), _id])).toString('base64url');
}

/** @throws InvalidArgumentError `bad_cursor` */
export function readCursor(text: string): { createdAt: Date; id: string } | undefined {
  if (text === '') return undefined;
  try {
    const [at, id] = Cursor.parse(JSON.parse(Buffer.from(text, 'base64url').toString()));
    return { createdAt: new Date(at), id };
  } catch (cause) {
    throw new InvalidArgumentError('bad_cursor', "'cursor' is none that this list gave", { cause });
  }
}
