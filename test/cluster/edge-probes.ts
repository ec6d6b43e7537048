import type { ClusterHarness, Manifest } from './harness';
import { answering, nodePod, READY_ON_HTTP } from './pods';

export interface Source {
  name: string;
  namespace: string;
  pod: string;
}
export interface Target {
  name: string;
  host: string;
  port: number;
  isUdp?: boolean;
}

const WAIT_MS = 2_500;
/** Pods at once: each asks all targets at once, too. */
const AT_ONCE = 6;

/** Prints the indexes of those targets that take a connection, or answer a question about a name. */
const PROBE = `
  const targets = JSON.parse(process.argv[1]);
  const overTcp = ({ host, port }, tell) => {
    const socket = require('node:net').connect(port, host).on('error', () => tell(false)).on('connect', () => tell(true));
    setTimeout(() => tell(socket.destroy() && false), ${WAIT_MS});
  };
  const overUdp = ({ host, port }, tell) => {
    const socket = require('node:dgram').createSocket('udp4').on('error', () => tell(false)).on('message', () => tell(true));
    const query = Buffer.from('0001010000010000000000000a6b756265726e657465730764656661756c740373766307636c7573746572056c6f63616c0000010001', 'hex');
    socket.send(query, port, host);
    setTimeout(() => tell(false), ${WAIT_MS});
  };
  Promise.all(targets.map((target) => new Promise((tell) => (target.isUdp ? overUdp : overTcp)(target, tell)))).then((open) => {
    console.log(JSON.stringify(open.flatMap((isOpen, index) => (isOpen ? [index] : []))));
    process.exit();
  });`;

/** A pod that looks like one of the component's, and never becomes an end of its Service. */
export function probePod(cluster: ClusterHarness, name: string, namespace: string, labels: Record<string, string>) {
  const container = { readinessProbe: { tcpSocket: { port: 1 }, initialDelaySeconds: 3_600 } };
  return nodePod(cluster, { name, namespace, labels, script: 'setInterval(() => {}, 1e6)', container });
}

/** A false metadata service of the node. Whoever has the port already is as good. */
export function metadataPod(cluster: ClusterHarness, namespace: string, address: string): Manifest {
  // A pod of another file may be leaving that port only now; a cloud's own service never does, and is as good.
  const script = `const server = require('node:net').createServer((socket) => socket.end());
    const listen = () => server.listen(80, '${address}');
    server.on('error', () => setTimeout(listen, 500));
    listen();`;
  const container = { securityContext: { runAsUser: 0, privileged: true } };
  const spec = { hostNetwork: true, securityContext: {} };
  return nodePod(cluster, { name: 'metadata', namespace, script, container, spec });
}

/** Answers on 8080 as a house server would. */
export const webPod = (cluster: ClusterHarness, namespace: string): Manifest =>
  nodePod(cluster, { name: 'web', namespace, script: answering(`'hello from the web'`), container: READY_ON_HTTP });

/** All connections that can be made: `from → to`, sorted. */
export async function openEdges(
  cluster: ClusterHarness,
  sources: readonly Source[],
  targets: readonly Target[],
): Promise<string[]> {
  const waiting = [...sources];
  const edges: string[] = [];
  const work = async () => {
    for (let source = waiting.pop(); source; source = waiting.pop()) {
      const { name, namespace, pod } = source;
      const others = targets.filter((target) => target.name.split(':')[0] !== name);
      const command = ['/usr/bin/node', '-e', PROBE, JSON.stringify(others)];
      const open = JSON.parse(await cluster.exec(namespace, pod, command)) as number[];
      edges.push(...open.map((index) => `${name} → ${others[index]?.name}`));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return edges.sort();
}
