/**
 * Who may call the gRPC server of a service, or the door of the egress proxy for services. The chart's network policies are the same table (`margay.edges`), and a test
 * compares them.
 */
const CALLERS: ReadonlyMap<string, readonly string[]> = new Map([
  ['session', ['gateway', 'agent-runner', 'tool-executor', 'mcp-pool', 'ide-manager', 'channel', 'egress']],
  ['tool-executor', ['gateway', 'session', 'agent-runner', 'mcp-pool', 'ide-manager', 'egress']],
  ['mcp-pool', ['gateway', 'agent-runner']],
  ['ide-manager', ['gateway']],
  ['channel', ['gateway']],
  ['egress', ['tool-executor']],
]);

/** The service behind a contract, by the middle part of its proto package. */
const SERVERS: ReadonlyMap<string, string> = new Map([
  ['tools', 'tool-executor'],
  ['mcp', 'mcp-pool'],
  ['ide', 'ide-manager'],
]);

/** The name of a service in certificates, whatever address it is reached at. */
export const peerName = (service: string): string => `${service}.margay.internal`;

/** The service that serves contracts of this audience. */
export const serverOf = (audience: string): string => SERVERS.get(audience) ?? audience;

/** Services that may call this one; nobody where it has no door for them. */
export const callersOf = (service: string): readonly string[] => CALLERS.get(service) ?? [];
