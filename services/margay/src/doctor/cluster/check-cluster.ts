import { randomBytes } from 'node:crypto';
import { getServers, lookup } from 'node:dns/promises';
import { connect, isIP } from 'node:net';
import { executorPb } from '@margay/contracts';
import { UnavailableError } from '@margay/errors';
import {
  createLogger,
  grpcClient,
  KeyRing,
  METADATA_SERVICES,
  serversOf,
  storeGenerationOf,
  systemPrincipal,
  TlsIdentity,
  type GrpcClient,
} from '@margay/platform';
import type { DoctorConfig } from '../../config';
import { fault, ok, reasonOf, warning, type Finding } from '../finding';
import { probeFindings } from './probe-findings';
import { probeScript, type ProbeQuestions, type ProbeReport } from './probe-script';

/** Runs of the platform itself belong to nobody. */
const TENANT = '_platform';
const SILENT = createLogger({ service: 'doctor', level: 'off' });
const PROBE_TIMEOUT_MS = 60_000;
const CONNECT_MS = 2_000;
const SANDBOXD_PORT = 7777;

export interface ClusterCheckOptions {
  config: DoctorConfig;
  progress: (line: string) => void;
}

/**
 * Starts a sandbox for a session of nobody, looks out of it, and ends it. It speaks for session, whose key it needs: run it
 * in a pod of session.
 */
export async function checkCluster({ config, progress }: ClusterCheckOptions): Promise<Finding[]> {
  const { MARGAY_TOOL_EXECUTOR_URL: url, MARGAY_KEYS_DIR: keysDirectory, MARGAY_TLS_DIR: tlsFolder } = config;
  if (url === undefined || keysDirectory === undefined) return [notHere('MARGAY_TOOL_EXECUTOR_URL and MARGAY_KEYS_DIR are not set')]; // prettier-ignore
  try {
    const tls = tlsFolder === undefined ? undefined : await TlsIdentity.open(tlsFolder, SILENT);
    const keys = await KeyRing.load(keysDirectory, 'session', { tls });
    const client = grpcClient(executorPb.ExecutorDefinition, url, { keys });
    try {
      progress('cluster: a sandbox looks around');
      return await lookAround({ client, keys, config });
    } finally {
      client.close();
    }
  } catch (error) {
    return [fault('cluster.sandbox', `no sandbox could look around: ${reasonOf(error)}`, 'look at tool-executor: its /readyz, its logs, and the events of the workspaces namespace')]; // prettier-ignore
  }
}

interface Around {
  client: GrpcClient<typeof executorPb.ExecutorDefinition>;
  keys: KeyRing;
  config: DoctorConfig;
}

async function lookAround(around: Around): Promise<Finding[]> {
  const { isolation } = await around.client.listTools({});
  if (isolation !== 'pod') return [notHere(`sandboxes are no pods here (${isolation ?? 'unknown'})`)];
  const sessionId = randomBytes(16).toString('hex');
  const questions = await questionsFor(around.config);
  const startedAt = performance.now();
  try {
    const found = await report(around, sessionId, questions);
    const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
    return [
      ok('cluster.sandbox', `a sandbox started, looked around and answered in ${seconds} s`),
      ...probeFindings(found, questions),
      await doorFinding(found.addresses),
    ];
  } finally {
    const principal = systemPrincipal('session', TENANT);
    await around.client.release({ sessionId }, { principal });
  }
}

async function report(around: Around, sessionId: string, questions: ProbeQuestions): Promise<ProbeReport> {
  const { client, keys, config } = around;
  const grant = await keys.signRunGrant({
    v: 1,
    tenantId: TENANT,
    sessionId,
    runId: `${sessionId}:r1`,
    epoch: 1,
    storeGeneration: storeGenerationOf(config.MARGAY_MONGODB_DATABASE),
    principal: 'system:doctor',
    workspace: { kind: 'own' },
  });
  const program = Buffer.from(probeScript(questions)).toString('base64');
  const request = executorPb.ExecuteRequest.fromPartial({
    callId: `${sessionId}.1.0.0`,
    toolId: 'aider_shell_tool',
    argsJson: JSON.stringify({ command: `node -e "$(echo ${program} | base64 -d)"` }),
    timeoutMs: PROBE_TIMEOUT_MS,
  });
  let output = '';
  for await (const { message } of client.execute(request, { grant })) {
    if (message?.$case === 'output') output += Buffer.from(message.value.bytes).toString();
    if (message?.$case === 'finished' && message.value.status !== 'ok') throw failed(message.value.status);
  }
  try {
    return JSON.parse(output) as ProbeReport;
  } catch {
    throw failed('something that is no report');
  }
}

function failed(what: string): Error {
  return new UnavailableError('probe_failed', `the program that looks around in the sandbox ended with ${what}`);
}

/** What no sandbox may reach, as far as the environment names it. */
async function questionsFor(config: DoctorConfig): Promise<ProbeQuestions> {
  const { MARGAY_MONGODB_URL: store, MARGAY_NATS_URL: nats, MARGAY_TOOL_EXECUTOR_URL: executor } = config;
  const { KUBERNETES_SERVICE_HOST: apiHost, KUBERNETES_SERVICE_PORT: apiPort } = config;
  const named: Record<string, string | undefined> = {
    'the Kubernetes API': apiHost && `${apiHost.includes(':') ? `[${apiHost}]` : apiHost}:${apiPort}`,
    'the document store': store && new URL(store.split(',', 1)[0] ?? '').host,
    NATS: nats && new URL(serversOf(nats).servers[0] ?? '').host,
    'tool-executor': executor?.replace(/^.*\/\//, ''),
  };
  const resolved = await Promise.all(Object.entries(named).map(async ([name, host]) => [name, await addressOf(host)]));
  const known = resolved.filter((entry): entry is [string, string] => entry[1] !== undefined);
  return { closed: { ...METADATA_SERVICES, ...Object.fromEntries(known) }, nameServers: getServers().filter((server) => isIP(server) !== 0) }; // prettier-ignore
}

/** Sandboxes resolve no names. Undefined where this process can't either, as for seed lists. */
async function addressOf(target: string | undefined): Promise<string | undefined> {
  const cut = target?.lastIndexOf(':') ?? -1;
  if (target === undefined || cut < 0) return undefined;
  const host = target.slice(0, cut).replace(/^\[|\]$/g, '');
  if (isIP(host) !== 0) return `${host}${target.slice(cut)}`;
  const { address } = await lookup(host).catch(() => ({ address: undefined }));
  return address && `${address}${target.slice(cut)}`;
}

/** The other way round: only tool-executor may speak to a sandbox, and this is session. */
async function doorFinding(addresses: readonly string[]): Promise<Finding> {
  const address = addresses.find((each) => isIP(each) === 4) ?? addresses[0];
  if (address === undefined) return ok('cluster.door', 'the sandbox has no network, so nobody can reach it');
  const isOpen = await new Promise<boolean>((resolve) => {
    const socket = connect({ host: address, port: SANDBOXD_PORT });
    const end = (is: boolean): void => {
      socket.destroy();
      resolve(is);
    };
    socket.setTimeout(CONNECT_MS, () => end(false));
    socket.once('connect', () => end(true)).once('error', () => end(false));
  });
  if (!isOpen) return ok('cluster.door', 'nobody but tool-executor reaches sandboxes');
  const fix = 'use a network plugin that enforces NetworkPolicy in the workspaces namespace too';
  return fault('cluster.door', 'pods other than tool-executor reach the port of sandboxes', fix);
}

function notHere(why: string): Finding {
  return warning('cluster.sandbox', why, 'run it in a pod of session: kubectl exec deploy/margay-session -- node /opt/margay/margay.cjs doctor --cluster'); // prettier-ignore
}
