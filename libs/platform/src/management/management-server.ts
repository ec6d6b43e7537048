import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { UnavailableError } from '@margay/errors';
import type { Registry } from 'prom-client';
import type { Logger } from '../logging/logger';
import { HealthChecks, type Check, type CheckKind, type HealthReport } from './health';
import { ProcessMetrics } from './process-metrics';

export interface ManagementServerOptions {
  /** `host:port`; port 0: a free one. */
  listen: string;
  logger: Logger;
  version?: string;
}

/** Answers with a JSON body; `path` is what follows the registered prefix. */
export type InternalRoute = (path: string) => Promise<{ status?: number; body: unknown }>;

/**
 * The port for Kubernetes and Prometheus: `/livez`, `/startupz`, `/readyz` (JSON, 503 naming the failed checks; 200 with
 * `degraded` in words), `/metrics`, and routes that services register. It has no authentication and is never public.
 */
export class ManagementServer {
  private readonly health = new HealthChecks();
  private readonly metrics: ProcessMetrics;
  private readonly routes = new Map<string, InternalRoute>();
  private server?: Server;
  private isReady = false;
  private isStarted = false;

  constructor(private readonly options: ManagementServerOptions) {
    this.metrics = new ProcessMetrics(options.version ?? '0.0.0');
    this.health.add('process.loop', 'ready', () => this.metrics.loop.checkReady());
    this.health.add('process.loop', 'live', () => this.metrics.loop.checkLive());
    this.metrics.showChecks(async () => (await this.health.report('ready')).checks);
  }

  get registry(): Registry {
    return this.metrics.registry;
  }

  /** Returns the function that removes the check. */
  registerCheck(name: string, kind: CheckKind, check: Check): () => void {
    return this.health.add(name, kind, check);
  }

  /** Serves GET of this prefix, e.g. `/internal/demand/`. */
  registerRoute(prefix: string, route: InternalRoute): () => void {
    this.routes.set(prefix, route);
    return () => void this.routes.delete(prefix);
  }

  /** False until start-up is done, and first of all when shutting down. True also completes `/startupz`. */
  setReady(isReady: boolean): void {
    this.isReady = isReady;
    if (isReady) this.isStarted = true;
  }

  async start(): Promise<{ port: number }> {
    const { listen } = this.options;
    const separator = listen.lastIndexOf(':');
    const host = listen.slice(0, separator).replace(/^\[|\]$/g, '');
    const server = createServer((request, response) => void this.handle(request, response));
    this.server = server;
    await new Promise<void>((resolve, reject) => {
      server.once('error', (cause) =>
        reject(new UnavailableError('listen_failed', `Cannot listen on ${listen}; is the port taken?`, { cause })),
      );
      server.listen(Number(listen.slice(separator + 1)), host, resolve);
    });
    return { port: (server.address() as AddressInfo).port };
  }

  async close(): Promise<void> {
    this.metrics.close();
    const { server } = this;
    if (!server?.listening) return;
    await new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  }

  private async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const path = (request.url ?? '/').split('?', 1)[0] as string;
      if (request.method !== 'GET' && request.method !== 'HEAD') return sendJson(response, 405, { error: 'only GET' });
      await this.answer(path, response);
    } catch (error) {
      this.options.logger.error({ err: error }, 'management request failed');
      if (!response.headersSent) sendJson(response, 500, { error: 'internal' });
    }
  }

  private async answer(path: string, response: ServerResponse): Promise<void> {
    if (path === '/livez') return sendReport(response, await this.health.report('live'));
    if (path === '/startupz') return sendReport(response, await this.gated('startup', this.isStarted));
    if (path === '/readyz') return sendReport(response, await this.gated('ready', this.isReady));
    if (path === '/metrics') {
      response.setHeader('content-type', this.registry.contentType);
      response.end(await this.registry.metrics());
      return;
    }
    const entry = [...this.routes].find(([prefix]) => path.startsWith(prefix));
    if (!entry) return sendJson(response, 404, { error: `nothing at ${path}` });
    const { status = 200, body } = await entry[1](decodeURIComponent(path.slice(entry[0].length)));
    sendJson(response, status, body);
  }

  private async gated(kind: CheckKind, isOpen: boolean): Promise<HealthReport> {
    const report = await this.health.report(kind);
    if (isOpen) return report;
    const checks = { ...report.checks, process: { status: 'failed' as const, detail: 'starting or shutting down' } };
    return { status: 'failed', failed: [...(report.failed ?? []), 'process'], checks };
  }
}

function sendReport(response: ServerResponse, report: HealthReport): void {
  sendJson(response, report.status === 'failed' ? 503 : 200, report);
}

function sendJson(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}
