import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { CommandFailure, runCommand, type CommandOptions } from './command';

/** Any object of Kubernetes, as it is written into a manifest. */
export interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace?: string; labels?: Record<string, string>; annotations?: Record<string, string> };
  [field: string]: unknown;
}

/** One request that wrote something, from the API server's audit log. */
export interface AuditedWrite {
  verb: string;
  user: string;
  resource: string;
  namespace?: string;
  name?: string;
  code?: number;
  at: string;
}

const RESTRICTED = { 'pod-security.kubernetes.io/enforce': 'restricted' };
const POLL_MS = 200;

/**
 * The cluster that tools/test-cluster.mjs has started, or the one KUBECONFIG names. Each spec works in namespaces of
 * its own, which `stop` removes.
 */
export class ClusterHarness {
  /** `local.test/`, unless the images of the run lie elsewhere. */
  readonly imagePrefix = process.env.MARGAY_TEST_IMAGE_PREFIX ?? 'local.test/';
  /** An imported image can be pulled from nowhere. */
  readonly imagePullPolicy = this.imagePrefix === 'local.test/' ? 'Never' : 'IfNotPresent';
  private readonly binary = process.env.MARGAY_TEST_CLUSTER_BINARY;
  private readonly namespaces: string[] = [];

  image(name: 'margay' | 'margay-sandbox' | 'nats' | 'store' | 'plain'): string {
    const isOurs = name === 'margay' || name === 'margay-sandbox';
    return `${this.imagePrefix}${name}:${isOurs ? process.env.MARGAY_TEST_VERSION : 'dev'}`;
  }

  kubectl(args: readonly string[], options?: CommandOptions): Promise<string> {
    return this.run('kubectl', args, options);
  }

  helm(args: readonly string[], options?: CommandOptions): Promise<string> {
    return this.run('helm', args, options);
  }

  /** A new namespace under Pod Security `restricted` unless the labels say otherwise. */
  async namespace(prefix: string, labels: Record<string, string> = RESTRICTED): Promise<string> {
    const name = `${prefix}-${randomBytes(3).toString('hex')}`;
    this.namespaces.push(name);
    await this.apply({ apiVersion: 'v1', kind: 'Namespace', metadata: { name, labels } });
    // Pods are refused until the namespace has its service account.
    await this.until(`service account of ${name}`, () =>
      this.kubectl(['-n', name, 'get', 'serviceaccount', 'default']),
    );
    return name;
  }

  async apply(...manifests: readonly Manifest[]): Promise<string> {
    const items = { apiVersion: 'v1', kind: 'List', items: manifests };
    return this.kubectl(['apply', '-f', '-'], { input: JSON.stringify(items) });
  }

  async get<T>(namespace: string, ...what: readonly string[]): Promise<T> {
    return JSON.parse(await this.kubectl(['-n', namespace, 'get', ...what, '-o', 'json'])) as T;
  }

  async waitFor(namespace: string, what: string, condition: string, timeoutSeconds = 90): Promise<void> {
    await this.kubectl(['-n', namespace, 'wait', what, `--for=${condition}`, `--timeout=${timeoutSeconds}s`], {
      timeoutMs: (timeoutSeconds + 10) * 1_000,
    });
  }

  exec(namespace: string, pod: string, command: readonly string[], options?: CommandOptions): Promise<string> {
    const stdin = options?.input === undefined ? [] : ['--stdin'];
    return this.kubectl(['-n', namespace, 'exec', ...stdin, pod, '--', ...command], options);
  }

  /** Runs JavaScript in a pod of an image that has Node; what it prints. */
  async evaluate(namespace: string, pod: string, script: string): Promise<string> {
    return (await this.exec(namespace, pod, ['/usr/bin/node', '-e', script])).trim();
  }

  /** Tries until it doesn't throw, and answers its value. */
  async until<T>(what: string, attempt: () => Promise<T>, timeoutMs = 30_000): Promise<T> {
    const deadline = performance.now() + timeoutMs;
    for (;;) {
      try {
        return await attempt();
      } catch (cause) {
        if (performance.now() > deadline) throw new Error(`${what}: not within ${timeoutMs} ms`, { cause });
        await sleep(POLL_MS);
      }
    }
  }

  /** Who wrote what since the cluster began; without the cluster's own programs. Only where we started the cluster. */
  async auditedWrites(): Promise<AuditedWrite[]> {
    const log = process.env.MARGAY_TEST_AUDIT_LOG;
    if (!log) throw new Error('the audit log of this cluster cannot be read: MARGAY_TEST_AUDIT_LOG is not set');
    const lines = (await readFile(log, 'utf8')).split('\n').filter((line) => line !== '');
    return lines.map((line) => toWrite(JSON.parse(line) as AuditEvent));
  }

  /** Asks for the end of all namespaces of this harness; the cluster goes on with it by itself. */
  async stop(): Promise<void> {
    if (this.namespaces.length === 0) return;
    await this.kubectl(['delete', 'namespace', '--ignore-not-found', '--wait=false', ...this.namespaces]);
    this.namespaces.length = 0;
  }

  private run(program: 'kubectl' | 'helm', args: readonly string[], options?: CommandOptions): Promise<string> {
    return this.binary ? runCommand(this.binary, [program, ...args], options) : runCommand(program, args, options);
  }
}

interface AuditEvent {
  verb: string;
  user: { username: string };
  objectRef?: { resource: string; subresource?: string; namespace?: string; name?: string };
  responseStatus?: { code?: number };
  requestReceivedTimestamp: string;
}

function toWrite(event: AuditEvent): AuditedWrite {
  const { resource = '', subresource, namespace, name } = event.objectRef ?? {};
  const code = event.responseStatus?.code;
  return {
    verb: event.verb,
    user: event.user.username,
    resource: subresource ? `${resource}/${subresource}` : resource,
    ...(namespace !== undefined && { namespace }),
    ...(name !== undefined && { name }),
    ...(code !== undefined && { code }),
    at: event.requestReceivedTimestamp,
  };
}

/** The standard error of a command that must fail. */
export async function refusal(command: Promise<string>): Promise<string> {
  try {
    await command;
  } catch (error) {
    if (error instanceof CommandFailure) return error.stderr;
    throw error;
  }
  throw new Error('the command succeeded, but had to be refused');
}
