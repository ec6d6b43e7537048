/** What code that runs in a sandbox is asked to try. */
export interface NetworkQuestions {
  /** `host:port` by name; nothing of this may be reached over TCP. */
  closed: Record<string, string>;
  /** Name servers that must not answer, as addresses. */
  nameServers: string[];
}

export interface NetworkReport {
  /** Names of `closed` that could be reached. */
  reached: string[];
  /** Name servers that answered. */
  answered: string[];
}

/** Where clouds tell a machine its secrets. */
export const METADATA_SERVICES: Record<string, string> = {
  'the metadata service': '169.254.169.254:80',
  'the metadata service over IPv6': 'fd00:ec2::254:80',
};

/**
 * JavaScript for Node, without any of our code: `look(questions)` resolves to the report. It tries everything at once; a
 * connection that is neither taken nor refused for two seconds counts as closed.
 */
export const NETWORK_PROBE = `
const net = require('net'), dgram = require('dgram');
const WAIT = 2000;
const reach = (target) => new Promise((done) => {
  const cut = target.lastIndexOf(':');
  const socket = net.connect({ host: target.slice(0, cut), port: Number(target.slice(cut + 1)) });
  const end = (is) => { socket.destroy(); done(is); };
  socket.setTimeout(WAIT, () => end(false)).once('connect', () => end(true)).once('error', () => end(false));
});
const ask = (server) => new Promise((done) => {
  const socket = dgram.createSocket(net.isIPv6(server) ? 'udp6' : 'udp4');
  const end = (is) => { clearTimeout(timer); socket.close(); done(is); };
  const timer = setTimeout(() => end(false), WAIT);
  socket.once('message', () => end(true)).once('error', () => end(false));
  const name = Buffer.concat(['example', 'com'].map((part) => Buffer.from([part.length, ...Buffer.from(part)])));
  const query = Buffer.concat([Buffer.from('4d4101000001000000000000', 'hex'), name, Buffer.from('0000010001', 'hex')]);
  socket.send(query, 53, server, (error) => error && end(false));
});
const which = async (names, test) => {
  const found = await Promise.all(names.map(test));
  return names.filter((_, index) => found[index]);
};
const look = async ({ closed, nameServers }) => {
  const [reached, answered] = await Promise.all([
    which(Object.keys(closed), (name) => reach(closed[name])), which(nameServers, ask)]);
  return { reached, answered };
};`;
