import { readFile } from 'node:fs/promises';
import { join } from 'node:path';

export interface DocumentedMetric {
  name: string;
  /** Other ones need an option, e.g. the driver of a cluster. */
  isAlways: boolean;
}

const root = join(__dirname, '../../..');
const ROW = /^\| `(margay_[a-z_]+)`\s*\| ([^|]+)\|/gm;

/** The metrics that docs/operating.md lists. */
export async function documentedMetrics(): Promise<DocumentedMetric[]> {
  const text = await readFile(join(root, 'docs/operating.md'), 'utf8');
  return [...text.matchAll(ROW)].map(([, name = '', from = '']) => ({ name, isAlways: !from.includes('*') }));
}

/** Names of ours that a text of Prometheus declares. */
export function registeredIn(text: string): string[] {
  return [...new Set([...text.matchAll(/^# TYPE (margay_[a-z_]+) /gm)].map(([, name = '']) => name))].sort();
}
