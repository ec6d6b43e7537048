import { NETWORK_PROBE, type NetworkQuestions, type NetworkReport } from '@margay/platform';

/** What a sandbox is asked to try. */
export type ProbeQuestions = NetworkQuestions;

/** What it found out. */
export interface ProbeReport extends NetworkReport {
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

/** A program for Node that tries it, everything at once, and prints the report as its only line. */
export function probeScript(questions: ProbeQuestions): string {
  return `${NETWORK_PROBE}${SCRIPT}\nmain(${JSON.stringify(questions)});`;
}

const SCRIPT = `
const fs = require('fs'), os = require('os'), http = require('http');
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
  const proxy = process.env.HTTPS_PROXY || process.env.https_proxy;
  const [{ reached, answered }, proxyStatus] = await Promise.all([
    look({ closed, nameServers }), proxy ? proxied(proxy) : undefined]);
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
