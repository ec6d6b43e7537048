import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';

export interface FakeObject {
  kind: 'Pod' | 'PersistentVolumeClaim' | 'Node';
  metadata: {
    name: string;
    uid: string;
    resourceVersion: string;
    namespace: string;
    creationTimestamp: string;
    deletionTimestamp?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
  };
  spec: Record<string, unknown>;
  status: Record<string, unknown>;
}

interface Watcher {
  response: ServerResponse;
  namespace: string;
  plural: string;
  selector: string;
}

export interface FakeWrite {
  verb: 'create' | 'patch' | 'delete';
  plural: string;
  name: string;
}

const PATH = /^\/api\/v1\/namespaces\/([\w.-]+)\/(pods|persistentvolumeclaims|events)(?:\/([\w.-]+))?$/;
const NODES = '/api/v1/nodes';
const KINDS: Record<string, FakeObject['kind']> = {
  pods: 'Pod',
  persistentvolumeclaims: 'PersistentVolumeClaim',
  nodes: 'Node',
};

/** For specs: an HTTP server that speaks the API's wire for pods and volumes. Pods do nothing by themselves. */
export class FakeCluster {
  readonly writes: FakeWrite[] = [];
  readonly objects = new Map<string, FakeObject>();
  /** Pods it takes before it refuses by quota. */
  podQuota = Infinity;
  isDown = false;
  /** Whether volumes can be made larger. */
  canGrow = true;
  /** Where it refuses everything, as without a role. */
  readonly forbidden = new Set<string>();
  onPod: (pod: FakeObject) => void = () => undefined;
  /** Takes a pod away after its grace. */
  onDelete: (pod: FakeObject, graceSeconds: number) => void = (pod) => this.remove(pod);
  private version = 100;
  private readonly watchers = new Set<Watcher>();
  private readonly server: Server = createServer((request, response) => void this.answer(request, response));

  async start(): Promise<string> {
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    return `http://127.0.0.1:${(this.server.address() as { port: number }).port}`;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    this.server.close();
    await once(this.server, 'close');
  }

  /** @param namespace undefined: of all of them */
  list(plural: string, namespace?: string): FakeObject[] {
    const isThere = ({ metadata }: FakeObject) => namespace === undefined || metadata.namespace === namespace;
    return [...this.objects.values()].filter((object) => object.kind === KINDS[plural] && isThere(object));
  }

  setStatus(pod: FakeObject, status: Record<string, unknown>): void {
    if (!this.objects.has(keyOf(pod))) return;
    pod.status = { ...pod.status, ...status };
    this.changed('MODIFIED', pod);
  }

  remove(object: FakeObject): void {
    if (this.objects.delete(keyOf(object))) this.changed('DELETED', object);
  }

  /** As somebody with `kubectl` would. */
  add(kind: FakeObject['kind'], name: string, labels: Record<string, string>, namespace = 'test'): FakeObject {
    const metadata = { ...this.fresh(namespace, name), labels };
    const object: FakeObject = { kind, metadata, spec: {}, status: {} };
    this.objects.set(keyOf(object), object);
    this.changed('ADDED', object);
    return object;
  }

  /** A node, on which the scheduler puts pods or not. */
  cordon(name: string, unschedulable = true): void {
    const known = this.objects.get(`Node//${name}`);
    const node = known ?? this.add('Node', name, {}, '');
    node.spec = { unschedulable };
    this.changed('MODIFIED', node);
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', 'http://cluster');
    const [, namespace = '', plural = '', name] =
      url.pathname === NODES ? ['', '', 'nodes'] : (PATH.exec(url.pathname) ?? []);
    if (this.isDown) return void request.socket.destroy();
    if (url.searchParams.get('watch') === 'true') return this.watch(url, { namespace, plural }, response);
    const raw = await text(request);
    const body = raw === '' ? {} : JSON.parse(raw);
    const [status, answer] = this.handle(request.method ?? '', { namespace, plural, name, body, url });
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
  }

  private handle(method: string, asked: Asked): [number, unknown] {
    const { namespace, plural, name, url } = asked;
    if (this.forbidden.has(namespace)) return failure(403, 'Forbidden', `${plural} is forbidden in "${namespace}"`);
    if (plural === 'events') return [200, { kind: 'EventList', items: [], metadata: {} }];
    if (method === 'POST') return this.create(asked);
    if (name === undefined) return [200, this.listOf(asked, url.searchParams.get('labelSelector') ?? '')];
    const known = this.objects.get(`${KINDS[plural]}/${namespace}/${name}`);
    if (!known) return failure(404, 'NotFound', `${plural} "${name}" not found`);
    if (method === 'GET') return [200, known];
    const meant = method === 'DELETE' ? asked.body.preconditions : asked.body.metadata;
    if (meant?.uid !== undefined && meant.uid !== known.metadata.uid) return conflict(name);
    if (meant?.resourceVersion !== undefined && meant.resourceVersion !== known.metadata.resourceVersion)
      return conflict(name);
    return method === 'PATCH' ? this.patch(known, asked) : this.delete(known, asked);
  }

  private create({ namespace, plural, body }: Asked): [number, unknown] {
    const kind = KINDS[plural] as FakeObject['kind'];
    const { name } = body.metadata as { name: string };
    if (this.objects.has(`${kind}/${namespace}/${name}`))
      return failure(409, 'AlreadyExists', `${plural} "${name}" already exists`);
    if (kind === 'Pod' && this.list('pods').length >= this.podQuota)
      return failure(403, 'Forbidden', `pods "${name}" is forbidden: exceeded quota: small, requested: pods=1`);
    const metadata = { ...body.metadata, ...this.fresh(namespace, name) };
    const object: FakeObject = { kind, metadata, spec: body.spec ?? {}, status: { phase: 'Pending' } };
    this.objects.set(keyOf(object), object);
    this.writes.push({ verb: 'create', plural, name });
    this.changed('ADDED', object);
    if (kind === 'Pod') this.onPod(object);
    return [201, object];
  }

  private patch(known: FakeObject, { plural, body }: Asked): [number, unknown] {
    const { labels, annotations } = body.metadata ?? {};
    known.metadata.labels = { ...known.metadata.labels, ...labels };
    known.metadata.annotations = { ...known.metadata.annotations, ...annotations };
    if (body.spec && !this.canGrow) return failure(403, 'Forbidden', 'the storageclass must support resize');
    known.spec = { ...known.spec, ...body.spec };
    this.writes.push({ verb: 'patch', plural, name: known.metadata.name });
    this.changed('MODIFIED', known);
    return [200, known];
  }

  private delete(known: FakeObject, { plural, body }: Asked): [number, unknown] {
    this.writes.push({ verb: 'delete', plural, name: known.metadata.name });
    if (known.kind !== 'Pod') this.remove(known);
    else {
      known.metadata.deletionTimestamp = new Date().toISOString();
      this.changed('MODIFIED', known);
      this.onDelete(known, body.gracePeriodSeconds ?? 30);
    }
    return [200, known];
  }

  private watch(
    url: URL,
    { namespace, plural }: Pick<Watcher, 'namespace' | 'plural'>,
    response: ServerResponse,
  ): void {
    const selector = url.searchParams.get('labelSelector') ?? '';
    const watcher = { response, namespace, plural, selector };
    response.writeHead(200, { 'content-type': 'application/json' });
    response.flushHeaders();
    this.watchers.add(watcher);
    response.on('close', () => this.watchers.delete(watcher));
    // What happened between the list and this request.
    const since = Number(url.searchParams.get('resourceVersion') ?? 0);
    for (const object of this.list(plural, namespace))
      if (Number(object.metadata.resourceVersion) > since && isMeant(object, selector)) send(response, 'ADDED', object);
  }

  private listOf({ namespace, plural }: Asked, selector: string): unknown {
    const items = this.list(plural, namespace).filter((object) => isMeant(object, selector));
    return { kind: `${KINDS[plural]}List`, items, metadata: { resourceVersion: String(this.version) } };
  }

  private changed(type: 'ADDED' | 'MODIFIED' | 'DELETED', object: FakeObject): void {
    this.version += 1;
    object.metadata.resourceVersion = String(this.version);
    for (const { response, namespace, plural, selector } of this.watchers)
      if (KINDS[plural] === object.kind && namespace === object.metadata.namespace && isMeant(object, selector))
        send(response, type, object);
  }

  private fresh(namespace: string, name: string) {
    const creationTimestamp = new Date().toISOString();
    return { name, uid: randomUUID(), namespace, creationTimestamp, resourceVersion: '0' };
  }
}

interface Asked {
  namespace: string;
  plural: string;
  name: string | undefined;
  body: {
    metadata?: { name?: string; uid?: string; resourceVersion?: string } & Partial<FakeObject['metadata']>;
    spec?: Record<string, unknown>;
    preconditions?: { uid?: string; resourceVersion?: string };
    gracePeriodSeconds?: number;
  };
  url: URL;
}

const keyOf = ({ kind, metadata }: FakeObject): string => `${kind}/${metadata.namespace}/${metadata.name}`;

function isMeant({ metadata }: FakeObject, selector: string): boolean {
  const demands = selector.split(',').filter((part) => part !== '');
  return demands.every((part) => metadata.labels?.[part.split('=')[0] ?? ''] === part.split('=')[1]);
}

function send(response: ServerResponse, type: string, object: FakeObject): void {
  response.write(`${JSON.stringify({ type, object })}\n`);
}

const conflict = (name: string) => failure(409, 'Conflict', `Operation cannot be fulfilled on "${name}"`);

function failure(code: number, reason: string, message: string): [number, unknown] {
  return [code, { kind: 'Status', status: 'Failure', code, reason, message }];
}
