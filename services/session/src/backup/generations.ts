import { FailedPreconditionError } from '@margay/errors';
import type { MongoClient } from 'mongodb';

/** Each generation of a store is a database of its own, `<name>_g<N>`. */
export interface Generation {
  /** `<name>_g`. */
  prefix: string;
  number: number;
}

const NAME = /^(.+_g)(\d+)$/;

/** @throws FailedPreconditionError `no_generation` */
export function generationIn(database: string): Generation {
  const [, prefix, number] = NAME.exec(database) ?? [];
  if (prefix === undefined)
    throw new FailedPreconditionError('no_generation', `The database ${database} names no generation; call it margay_g0 or so.`); // prettier-ignore
  return { prefix, number: Number(number) };
}

/** Numbers of the generations that exist, in order. */
export async function generationsOf(client: MongoClient, prefix: string): Promise<number[]> {
  const { databases } = await client.db('admin').admin().listDatabases({ nameOnly: true });
  const numbers = databases.flatMap(({ name }) => {
    const match = NAME.exec(name);
    return match?.[1] === prefix ? [Number(match[2])] : [];
  });
  return numbers.sort((a, b) => a - b);
}
