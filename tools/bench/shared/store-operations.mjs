/** What the store has been asked so far, by its own count: `{ insert, query, update, … }`. */
export async function operationsOf(connection) {
  const { opcounters } = await connection.db.admin().serverStatus();
  return Object.fromEntries(Object.entries(opcounters).map(([name, count]) => [name, Number(count)]));
}

/** Inserts, queries and updates between two counts. */
export function since(before, after) {
  const names = ['insert', 'query', 'update'];
  return Object.fromEntries(names.map((name) => [name, after[name] - before[name]]));
}
