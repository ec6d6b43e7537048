import { isHalfMade, type Head } from '@margay/log';
import type { Collection, Filter, OptionalUnlessRequiredId, WithoutId } from 'mongodb';
import { isDuplicateKey } from '@margay/platform';

interface Row {
  _id: string;
  tenantId: string;
  /** Number of the commit that this row shows. */
  c: number;
}

/** A collection whose rows follow from the heads of sessions. */
export interface DerivedRows<T extends Row> {
  collection: Collection<T>;
  /** Rows that belong to a session and say something of its present. */
  of: (sessionId: string) => Filter<T>;
  expected: (head: Head) => T[];
  /** What a row that the head does not have says instead; undefined: it is removed. */
  surplus?: (row: T, head: Head) => T | undefined;
  /** Fields that change without being projected. */
  volatile: readonly (keyof T)[];
  /** Rows that are left alone where the head expects nothing in their place. */
  isKept?: (row: T) => boolean;
  /** Rows that are left alone whatever the head expects. */
  isFinal?: (row: T) => boolean;
  onAhead: OnAhead;
}

/**
 * Told of a row that shows more than the head, before it is put right: it was written after its commit, so commits were
 * lost, and nothing else in the store may tell.
 */
export type OnAhead = (ahead: { sessionId: string; row: string; rowC: number; logC: number }) => void;

/** Restores what a session's rows say from its log. */
export interface SessionRows {
  /**
   * Reads the session's rows first and its head afterwards: a row that shows more than the head was never true.
   * @returns how many rows were wrong
   */
  restore(sessionId: string, readHead: () => Promise<Head>): Promise<number>;
}

const ROWS_MAX = 1_000;

/**
 * May run while the platform serves: each write is bound to what was read, so whoever projects a newer head meanwhile
 * wins.
 */
export function sessionRows<T extends Row>(rows: DerivedRows<T>): SessionRows {
  return {
    async restore(sessionId, readHead) {
      const found = (await rows.collection.find(rows.of(sessionId)).limit(ROWS_MAX).toArray()) as T[];
      const head = await readHead();
      if (isHalfMade(head) || found.some((row) => rows.isFinal?.(row))) return 0;
      for (const { _id: row, c: rowC } of found)
        if (rowC > head.c) rows.onAhead({ sessionId, row, rowC, logC: head.c });
      const expected = head.c === 0 ? [] : rows.expected(head);
      const known = new Map(found.map((row) => [row._id, row]));
      const wanted = new Map(expected.map((row) => [row._id, row]));
      let wrong = 0;
      for (const row of expected) wrong += await put(rows, known.get(row._id), row, head);
      for (const row of found)
        if (!wanted.has(row._id) && !rows.isKept?.(row)) wrong += await put(rows, row, rows.surplus?.(row, head), head);
      return wrong;
    },
  };
}

async function put<T extends Row>(
  rows: DerivedRows<T>,
  found: T | undefined,
  wanted: T | undefined,
  head: Head,
): Promise<0 | 1> {
  const { collection } = rows;
  if (!found) return wanted ? insert(collection, wanted) : 0;
  if (wanted && found.c <= head.c && isSame(found, wanted, ['c', ...rows.volatile])) return 0;
  const unchanged = { _id: found._id, c: found.c } as Filter<T>;
  if (!wanted) return (await collection.deleteOne(unchanged)).deletedCount > 0 ? 1 : 0;
  const replaced = await collection.replaceOne(unchanged, wanted as unknown as WithoutId<T>);
  return replaced.matchedCount > 0 ? 1 : 0;
}

async function insert<T extends Row>(collection: Collection<T>, row: T): Promise<0 | 1> {
  try {
    await collection.insertOne(row as unknown as OptionalUnlessRequiredId<T>);
    return 1;
  } catch (error) {
    // Somebody has just projected it.
    if (isDuplicateKey(error)) return 0;
    throw error;
  }
}

function isSame<T extends Row>(found: T, wanted: T, apartFrom: readonly (keyof T)[]): boolean {
  const fields = new Set([...Object.keys(found), ...Object.keys(wanted)] as (keyof T)[]);
  return [...fields].every((field) => apartFrom.includes(field) || isEqual(found[field], wanted[field]));
}

/** Fields hold plain values and lists of them. */
function isEqual(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
