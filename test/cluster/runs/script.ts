/** What the programs in pods and the tests agree on. */
export const PORTS = { model: 8000, note: 8001, control: 8002 };
export const COUNT_FILE = 'count.txt';
export const NOTE_MS = 300;
/** What the model says where no run is named. */
export const MODEL_ANSWER = 'All is well in the cluster.';
/** So many of a batch work in sandboxes of their own; the others call the HTTP tool `note`, which needs none. */
const IN_SANDBOXES = 4;

export interface RunName {
  name: string;
  batch: string;
  number: number;
}

/** What a model of a pod has seen. */
export interface Progress {
  /** Its answers by run. */
  calls: Record<string, number>;
  notes: string[];
}

/** What was followed of one run, and what is stored of its session; events as JSON. */
export interface Followed {
  name: string;
  sessionId: string;
  /** In the order in which the stream gave them. */
  streamed: string[];
  stored: string[];
  connections: number;
  verified: boolean;
}

export const nameOf = (batch: string, number: number): string => `run-${batch}-${number}`;

/** The run that a text names. */
export function runIn(text: string): RunName | undefined {
  const [name, batch, number] = /run-([a-z]+)-(\d+)/.exec(text) ?? [];
  return name === undefined || batch === undefined ? undefined : { name, batch, number: Number(number) };
}

export const isInSandbox = (run: RunName | undefined): boolean => run !== undefined && run.number < IN_SANDBOXES;
