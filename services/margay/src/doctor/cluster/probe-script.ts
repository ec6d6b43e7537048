/** What a sandbox is asked to try. */
export interface ProbeQuestions {
  /** `host:port` by name; nothing of this may be reached over TCP. */
  closed: Record<string, string>;
  /** Name servers that must not answer, as addresses. */
  nameServers: string[];
}

/** What it found out. */
export interface ProbeReport {
  /** Names of `closed` that could be reached. */
  reached: string[];
  /** Name servers that answered. */
  answered: string[];
  /** Status of a request to a host that no rule allows; absent without a proxy, 0 where it does not answer. */
  proxyStatus?: number;
  /** Addresses of the sandbox. */
  addresses: string[];
  hasToken: boolean;
  /** Most processes of its control group; absent where that can't be read. */
  processLimit?: string;
  hasUserNamespace: boolean;
  /** One small file written and synchronised in the workspace. */
  writeMs: number;
}

/**
 * A program for Node that tries it and prints the report as its only line. Everything at once; a connection that is
 * neither taken nor refused for two seconds counts as closed.
 */
export function probeScript(questions: ProbeQuestions): string {
  return `${SCRIPT}\nmain(${JSON.stringify(questions)});`;
}

const SCRIPT = `
const net = require('net'), dgram = require('dgram'), fs = require('fs'), os = require('os'), http = require('http');
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
const proxied = (proxy) => new Promise((done) => {
  const { hostname, port, username, password } = new URL(proxy);
  const authorization = 'Basic ' + Buffer.from(decodeURIComponent(username) + ':' + decodeURIComponent(password)).toString('base64');
  const request = http.request({ host: hostname, port, method: 'CONNECT', path: 'margay-doctor.invalid:443', timeout: WAIT * 2,
    headers: { 'proxy-authorization': authorization } });
  request.once('connect', ({ statusCode }, socket) => { socket.destroy(); done(statusCode); });
  request.once('response', (response) => { response.resume(); done(response.statusCode); });
  request.once('timeout', () => { request.destroy(); done(0); }).once('error', () => done(0));
  request.end();
});
const read = (path) => { try { return fs.readFileSync(path, 'utf8').trim(); } catch { return undefined; } };
function write() {
  const path = 'margay-doctor-' + process.pid;
  const startedAt = performance.now();
  const file = fs.openSync(path, 'w');
  fs.writeSync(file, 'x'.repeat(4096));
  fs.fsyncSync(file);
  fs.closeSync(file);
  const ms = performance.now() - startedAt;
  fs.unlinkSync(path);
  return ms;
}
async function main({ closed, nameServers }) {
  const which = async (names, test) => {
    const found = await Promise.all(names.map(test));
    return names.filter((_, index) => found[index]);
  };
  const proxy = process.env.HTTPS_PROXY || process.env.https_proxy;
  const [reached, answered, proxyStatus] = await Promise.all([
    which(Object.keys(closed), (name) => reach(closed[name])), which(nameServers, ask), proxy ? proxied(proxy) : undefined]);
  const group = (/^(?:\\d+:[\\w,=]*pids[\\w,]*|0:):?(.*)$/m.exec(read('/proc/self/cgroup') || '') || [])[1] || '';
  console.log(JSON.stringify({
    reached, answered, proxyStatus,
    addresses: Object.values(os.networkInterfaces()).flat().filter((each) => !each.internal).map((each) => each.address),
    hasToken: fs.existsSync('/var/run/secrets/kubernetes.io/serviceaccount/token'),
    processLimit: read('/sys/fs/cgroup/pids.max') || read('/sys/fs/cgroup/pids/pids.max') || read('/sys/fs/cgroup/pids' + group + '/pids.max'),
    hasUserNamespace: !/^\\s*0\\s+0\\s+4294967295$/.test(read('/proc/self/uid_map') || ''),
    writeMs: write(),
  }));
}`;
