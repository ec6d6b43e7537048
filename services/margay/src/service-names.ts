import { InvalidArgumentError } from '@margay/errors';
import { closest, distance } from 'fastest-levenshtein';

/** In the order in which they start: whoever calls another comes after it. They close in reverse. */
export const SERVICE_NAMES = [
  'egress',
  'tool-executor',
  'mcp-pool',
  'ide-manager',
  'channel',
  'session',
  'agent-runner',
  'gateway',
] as const;
export type ServiceName = (typeof SERVICE_NAMES)[number];

const LIKELY_DISTANCE = 4;

/**
 * Reads `--services a,b,c` (or `--services=a,b,c`). Throws INVALID_ARGUMENT `usage` that names every unknown service and
 * the one that was probably meant.
 */
export function parseServices(argv: readonly string[]): ServiceName[] {
  const [flag, ...rest] = argv;
  const list = flag?.startsWith('--services=') ? flag.slice('--services='.length) : rest[0];
  const isAlone = flag?.startsWith('--services=') ? rest.length === 0 : flag === '--services' && rest.length === 1;
  const asked = (list ?? '').split(',').map((name) => name.trim());
  const names = asked.filter(Boolean);
  if (!isAlone || names.length === 0) throw usage(`Usage: main --services ${SERVICE_NAMES.join(',')}`);
  const unknown = names.filter((name) => !isServiceName(name));
  if (unknown.length > 0) throw usage(unknown.map(describeUnknown).join(' '));
  return SERVICE_NAMES.filter((name) => names.includes(name));
}

function describeUnknown(name: string): string {
  const near = closest(name, SERVICE_NAMES);
  const hint =
    distance(name, near) <= LIKELY_DISTANCE ? `did you mean ${near}?` : `there are ${SERVICE_NAMES.join(', ')}.`;
  return `There is no service "${name}"; ${hint}`;
}

function isServiceName(name: string): name is ServiceName {
  return (SERVICE_NAMES as readonly string[]).includes(name);
}

const usage = (message: string) => new InvalidArgumentError('usage', message);
