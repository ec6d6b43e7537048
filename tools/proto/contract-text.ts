// A contract as plain lines, one per promise to older peers: `<message> <number> <name>: <type>`, `<enum> <number> <NAME>`,
// `<service>.<Method>(<request>) returns (<response>)`. Made from buf's descriptor, compared line by line.

interface Field {
  name: string;
  number: number;
  label: string;
  type: string;
  typeName?: string;
  oneofIndex?: number;
  proto3Optional?: boolean;
}

interface Message {
  name: string;
  field?: Field[];
  nestedType?: Message[];
  enumType?: Enum[];
  oneofDecl?: { name: string }[];
  options?: { mapEntry?: boolean };
}

interface Enum {
  name: string;
  value?: { name: string; number?: number }[];
}

interface Method {
  name: string;
  inputType: string;
  outputType: string;
  clientStreaming?: boolean;
  serverStreaming?: boolean;
}

export interface Descriptor {
  file: {
    package?: string;
    messageType?: Message[];
    enumType?: Enum[];
    service?: { name: string; method?: Method[] }[];
    bufExtension?: { isImport?: boolean };
  }[];
}

/** The lines of all files that are ours, sorted. */
export function contractLines(descriptor: Descriptor): string[] {
  const own = descriptor.file.filter((file) => !file.bufExtension?.isImport);
  const lines = own.flatMap((file) => {
    const scope = file.package ?? '';
    return [
      ...(file.messageType ?? []).flatMap((message) => messageLines(scope, message)),
      ...(file.enumType ?? []).flatMap((type) => enumLines(scope, type)),
      ...(file.service ?? []).flatMap(({ name, method = [] }) =>
        method.map((each) => methodLine(`${scope}.${name}`, each)),
      ),
    ];
  });
  return lines.sort();
}

function messageLines(scope: string, message: Message): string[] {
  const name = `${scope}.${message.name}`;
  return [
    `${name} message`,
    ...(message.field ?? []).map((field) => `${name} ${field.number} ${field.name}: ${typeOf(message, field)}`),
    ...(message.nestedType ?? []).flatMap((nested) => messageLines(name, nested)),
    ...(message.enumType ?? []).flatMap((nested) => enumLines(name, nested)),
  ];
}

function typeOf(message: Message, field: Field): string {
  const base = field.typeName?.slice(1) ?? field.type.replace('TYPE_', '').toLowerCase();
  const isRealOneof = field.oneofIndex !== undefined && !field.proto3Optional;
  const oneof = isRealOneof ? ` in ${message.oneofDecl?.[field.oneofIndex ?? 0]?.name}` : '';
  const isRepeated = field.label === 'LABEL_REPEATED';
  return `${field.proto3Optional ? 'optional ' : ''}${isRepeated ? 'repeated ' : ''}${base}${oneof}`;
}

function enumLines(scope: string, { name, value = [] }: Enum): string[] {
  return value.map((each) => `${scope}.${name} ${each.number ?? 0} ${each.name}`);
}

function methodLine(service: string, method: Method): string {
  const request = `${method.clientStreaming ? 'stream ' : ''}${method.inputType.slice(1)}`;
  const response = `${method.serverStreaming ? 'stream ' : ''}${method.outputType.slice(1)}`;
  return `${service}.${method.name}(${request}) returns (${response})`;
}

/** What the present contract breaks of the released one, in words; empty if older peers can go on. Additions are free. */
export function brokenPromises(released: readonly string[], present: readonly string[]): string[] {
  const kept = new Set(present);
  return released.filter((line) => !kept.has(line)).map((line) => describeBreak(line, present));
}

function describeBreak(line: string, present: readonly string[]): string {
  const [, owner, number, name] = /^(\S+) (\d+) ([^:]+)/.exec(line) ?? [];
  const method = /^(\S+?)\(/.exec(line)?.[1];
  if (method) {
    const now = present.find((each) => each.startsWith(`${method}(`));
    return now ? `changed: ${line}\n     now: ${now}` : `removed: ${line}`;
  }
  if (owner === undefined) return `removed: ${line}`;
  const renumbered = present.find(
    (each) => each.startsWith(`${owner} `) && each.split(' ')[2]?.replace(':', '') === name,
  );
  const reused = present.find((each) => each.startsWith(`${owner} ${number} `));
  if (renumbered && !renumbered.startsWith(`${owner} ${number} `))
    return `renumbered: ${line}\n        now: ${renumbered}`;
  return reused ? `changed: ${line}\n     now: ${reused}` : `removed: ${line}`;
}
