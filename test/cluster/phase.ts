import type { ClusterHarness } from './harness';

const LAST_EVENTS = 15;
const LAST_LINES = 20;

/** Runs a part of a test, says how long it took, and where it fails what the pods of the namespaces looked like. */
export async function phase<T>(
  cluster: ClusterHarness,
  what: string,
  namespaces: readonly string[],
  action: () => Promise<T>,
): Promise<T> {
  const startedAt = performance.now();
  try {
    return await action();
  } catch (error) {
    tell(`${what} failed: ${error instanceof Error ? error.message : String(error)}`);
    for (const namespace of namespaces) tell(await describePods(cluster, namespace));
    throw error;
  } finally {
    tell(`${what}: ${((performance.now() - startedAt) / 1_000).toFixed(1)} s`);
  }
}

export const tell = (text: string): void => void process.stderr.write(`[cluster] ${text}\n`);

/** Pods, newest events, and the last lines of pods that are not ready or were restarted. */
export async function describePods(cluster: ClusterHarness, namespace: string): Promise<string> {
  const ask = (...args: string[]) =>
    cluster.kubectl(['-n', namespace, ...args]).catch((error: unknown) => String(error));
  const pods = await ask('get', 'pods', '--no-headers');
  const events = await ask('get', 'events', '--sort-by=.lastTimestamp', '--no-headers');
  const logs = troubled(pods).map(async (pod) => {
    const now = await ask('logs', pod, '--all-containers', `--tail=${LAST_LINES}`);
    const before = await ask('logs', pod, '--all-containers', '--previous', `--tail=${LAST_LINES}`);
    return `--- ${pod}\n${now}\n--- ${pod}, before\n${before}`;
  });
  const newest = events.trim().split('\n').slice(-LAST_EVENTS).join('\n');
  return [`pods of ${namespace}:`, pods, newest, ...(await Promise.all(logs))].join('\n');
}

/** From lines such as `name 0/1 Running 2 (5s ago) 20s`. */
const troubled = (pods: string): string[] =>
  pods.split('\n').flatMap((line) => {
    const [name = '', ready = '', status = '', restarts = '0'] = line.split(/\s+/);
    const [up, all] = ready.split('/');
    return name !== '' && status !== 'Completed' && (up !== all || restarts !== '0') ? [name] : [];
  });
