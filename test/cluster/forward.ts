import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { createInterface } from 'node:readline';
import type { ClusterHarness } from './harness';

/** Local ports that lead to those of a pod, until it is closed. */
export interface Forward {
  ports: number[];
  close(): void;
}

/**
 * A way into a pod. Into a cluster of tools/testcluster it leads straight through its network namespace, so that what is
 * measured over it is the pod and not the API server; else it is a port-forward.
 */
export async function openForward(
  cluster: ClusterHarness,
  namespace: string,
  pod: string,
  ports: readonly number[],
): Promise<Forward> {
  const network = networkOfOurs();
  if (network === undefined) return portForward(namespace, pod, ports);
  const path = '-o=jsonpath={.status.podIP}';
  const address = await cluster.kubectl(['-n', namespace, 'get', 'pod', pod, path]);
  const opened = await Promise.all(ports.map((port) => straight(network, `${address}:${port}`)));
  return { ports: opened.map(({ port }) => port), close: () => opened.forEach(({ child }) => end(child)) };
}

/** The network namespace of a cluster that this machine runs, by where its kubeconfig lies. */
function networkOfOurs(): { binary: string; netns: string } | undefined {
  const binary = process.env.MARGAY_TEST_CLUSTER_BINARY;
  const name = /^\/var\/lib\/(margay-[\w-]+)\//.exec(process.env.KUBECONFIG ?? '')?.[1];
  const netns = `/run/netns/${name}`;
  return binary && name && existsSync(netns) ? { binary, netns } : undefined;
}

async function straight({ binary, netns }: { binary: string; netns: string }, target: string) {
  const port = await freePort();
  const args = ['forward', '-listen', `127.0.0.1:${port}`, '-to-netns', netns, '-to', target];
  const child = spawn(binary, args, { stdio: 'ignore' });
  while (!(await isOpen(port))) {
    if (child.exitCode !== null) throw new Error(`no way to ${target} could be opened`);
  }
  return { port, child };
}

async function portForward(namespace: string, pod: string, ports: readonly number[]): Promise<Forward> {
  const args = ['-n', namespace, 'port-forward', `pod/${pod}`, ...ports.map((port) => `:${port}`)];
  const binary = process.env.MARGAY_TEST_CLUSTER_BINARY;
  const child = binary ? spawn(binary, ['kubectl', ...args]) : spawn('kubectl', args);
  const found = new Map<number, number>();
  for await (const line of createInterface(child.stdout)) {
    const [, local, remote] = /127\.0\.0\.1:(\d+) -> (\d+)/.exec(line) ?? [];
    if (local !== undefined) found.set(Number(remote), Number(local));
    if (found.size === ports.length) break;
  }
  if (found.size < ports.length) {
    await once(child, 'close');
    throw new Error(`the ports of ${pod} could not be forwarded`);
  }
  return { ports: ports.map((port) => found.get(port) ?? 0), close: () => end(child) };
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}

function isOpen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    const tell = (isThere: boolean) => () => setTimeout(resolve, isThere ? 0 : 20, isThere) && socket.destroy();
    socket.once('connect', tell(true)).once('error', tell(false));
  });
}

function end(child: ChildProcess): void {
  if (child.exitCode === null) child.kill('SIGKILL');
}
