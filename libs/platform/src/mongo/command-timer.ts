import type { CommandFailedEvent, CommandStartedEvent, CommandSucceededEvent } from 'mongodb';
import type { Connection } from 'mongoose';
import { Histogram, type Registry } from 'prom-client';

const NAME = 'margay_store_operation_duration_seconds';
const BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10];
/** Commands on the documents of one collection; their names are what the label `operation` says. */
const OPERATIONS = new Set(['find', 'getMore', 'aggregate', 'count', 'distinct', 'insert', 'update', 'delete', 'findAndModify']); // prettier-ignore

/** Records how long commands of this connection take, failed ones too. The connection must monitor its commands. */
export function timeCommands(connection: Connection, registry: Registry): void {
  const histogram = histogramIn(registry);
  /** Collections of commands that are under way. */
  const collections = new Map<number, string>();
  connection.on('commandStarted', ({ requestId, commandName, command }: CommandStartedEvent) => {
    const collection: unknown = commandName === 'getMore' ? command['collection'] : command[commandName];
    if (OPERATIONS.has(commandName) && typeof collection === 'string') collections.set(requestId, collection);
  });
  const ended = ({ requestId, commandName, duration }: CommandSucceededEvent | CommandFailedEvent): void => {
    const collection = collections.get(requestId);
    if (collection === undefined) return;
    collections.delete(requestId);
    histogram.observe({ collection, operation: commandName }, duration / 1_000);
  };
  connection.on('commandSucceeded', ended);
  connection.on('commandFailed', ended);
}

/** Services of one process share it. */
function histogramIn(registry: Registry): Histogram<'collection' | 'operation'> {
  const existing = registry.getSingleMetric(NAME) as Histogram<'collection' | 'operation'> | undefined;
  const help = 'Time of a command of the document store, as its client sees it';
  const labelNames = ['collection', 'operation'] as const;
  return existing ?? new Histogram({ name: NAME, help, labelNames, buckets: BUCKETS, registers: [registry] });
}
