import { isMargayError, type MargayClient } from '@margay/client';
import type { CommandContext } from '../command-context';
import { EXIT } from '../failures';
import { oneLine } from '../render/sanitize';
import { table } from '../render/table';
import { VERSION } from '../version';

type Facts = Record<string, unknown>;

/** Reach and health of the server, and what it says about itself. */
export async function status(context: CommandContext): Promise<number> {
  const { client, url } = await context.connect();
  const health = await client.request<Facts>('GET', '/healthz');
  const system = await systemOf(client);
  const cells = [['server', url], ...factRows(health, 'health'), ...factRows(system ?? {}, '')];
  context.print({ json: { url, health, system: system ?? null }, lines: table([], cells, context.style) });
  return EXIT.completed;
}

/** The versions of this program and of the server, if there is one. */
export async function version(context: CommandContext): Promise<number> {
  const server = await serverVersion(context);
  const lines = [`margay ${VERSION}`, `server ${server ?? 'not reached'}`];
  context.print({ json: { client: VERSION, server: server ?? null }, lines, quiet: [VERSION] });
  return EXIT.completed;
}

async function serverVersion(context: CommandContext): Promise<string | undefined> {
  try {
    const { client } = await context.connect();
    const system = await systemOf(client);
    return system === undefined ? 'unknown' : versionIn(system);
  } catch (error) {
    if (!isMargayError(error)) throw error;
    if (context.options.verbose) context.remark(error.message);
    return undefined;
  }
}

const versionIn = ({ version: own, versions }: Facts): string => {
  const named = own ?? (versions as Facts | undefined)?.margay ?? (versions as Facts | undefined)?.gateway;
  return typeof named === 'string' ? oneLine(named) : 'unknown';
};

/** `GET /api/system`; undefined where the server does not serve it. */
async function systemOf(client: MargayClient): Promise<Facts | undefined> {
  try {
    return await client.request<Facts>('GET', '/api/system');
  } catch (error) {
    if (isMargayError(error) && error.code === 'NOT_FOUND') return undefined;
    throw error;
  }
}

/** Rows `name  value`; nested facts join their names by dots. */
function factRows(facts: Facts, prefix: string): string[][] {
  return Object.entries(facts).flatMap(([key, value]) => {
    const name = prefix ? `${prefix}.${key}` : key;
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return factRows(value as Facts, name);
    return [[oneLine(name), oneLine(Array.isArray(value) ? value.join(', ') : String(value))]];
  });
}
