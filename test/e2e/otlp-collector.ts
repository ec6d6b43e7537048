import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

type AttributeValue = { stringValue?: string; intValue?: number | string; arrayValue?: unknown };

/** A span as OTLP's JSON form has it. */
export interface CollectedSpan {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  /** Name of the process that made it. */
  service: string;
  attributes: Record<string, unknown>;
  isFailed: boolean;
}

interface ResourceSpans {
  resource: { attributes: { key: string; value: AttributeValue }[] };
  scopeSpans: {
    spans: (Omit<CollectedSpan, 'service' | 'attributes' | 'isFailed'> & {
      attributes: { key: string; value: AttributeValue }[];
      status?: { code?: number };
    })[];
  }[];
}

const STATUS_ERROR = 2;

/** Takes spans over OTLP/HTTP in its JSON form. */
export class OtlpCollector {
  readonly spans: CollectedSpan[] = [];
  /** Bodies as they came. */
  readonly bodies: string[] = [];

  private constructor(private readonly server: Server) {
    server.on('request', (request, response) => {
      void bodyOf(request).then((body) => {
        this.take(body);
        response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
      });
    });
  }

  static async start(): Promise<OtlpCollector> {
    const server = createServer();
    const collector = new OtlpCollector(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return collector;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  of(traceId: string): CollectedSpan[] {
    return this.spans.filter((span) => span.traceId === traceId);
  }

  async close(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  private take(body: string): void {
    this.bodies.push(body);
    const { resourceSpans } = JSON.parse(body) as { resourceSpans: ResourceSpans[] };
    for (const { resource, scopeSpans } of resourceSpans) {
      const service = String(attributesOf(resource.attributes)['service.name']);
      for (const { attributes, status, ...span } of scopeSpans.flatMap(({ spans }) => spans))
        this.spans.push({
          ...span,
          service,
          attributes: attributesOf(attributes),
          isFailed: status?.code === STATUS_ERROR,
        });
    }
  }
}

function attributesOf(list: { key: string; value: AttributeValue }[]): Record<string, unknown> {
  return Object.fromEntries(
    list.map(({ key, value }) => [key, value.stringValue ?? value.intValue ?? value.arrayValue]),
  );
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let body = '';
  for await (const chunk of request.setEncoding('utf8')) body += chunk as string;
  return body;
}
