// Reads values.yaml as its own manual: the comment above a key says what it is, `# @type NAME` and `# @schema {…}` say
// more about its shape than the default does.
import { isMap, parse, parseDocument } from 'yaml';

/** Shapes that a default can't show. */
export const TYPES = {
  object: { type: 'object' },
  objects: { type: 'array', items: { type: 'object' } },
  names: { type: 'array', items: { type: 'string', minLength: 1 } },
  words: { type: 'array', items: { type: 'string' } },
  labels: { type: 'object', additionalProperties: { type: ['string', 'number'] } },
  seconds: { type: 'number', minimum: 0, maximum: 3600 },
  quantity: { type: 'string', pattern: '^[0-9.]+(m|k|M|G|T|Ki|Mi|Gi|Ti)?$' },
  ports: { type: 'array', items: { type: 'integer', minimum: 1, maximum: 65535 }, minItems: 1 },
  cidrs: { type: 'array', items: { type: 'string', pattern: '^[0-9a-fA-F.:]+/[0-9]{1,3}$' } },
  peers: {
    type: 'array',
    items: {
      type: 'object',
      additionalProperties: false,
      minProperties: 1,
      properties: {
        namespaceSelector: { type: 'object' },
        podSelector: { type: 'object' },
        ipBlock: { type: 'object', required: ['cidr'] },
      },
    },
  },
  environment: {
    type: 'array',
    items: {
      type: 'object',
      additionalProperties: false,
      required: ['name'],
      properties: { name: { type: 'string' }, value: { type: 'string' }, valueFrom: { type: 'object' } },
    },
  },
  resources: {
    type: 'object',
    additionalProperties: false,
    required: ['requests', 'limits'],
    properties: {
      requests: { type: 'object', additionalProperties: { type: ['string', 'number'] } },
      // Without a limit the size of the heap could not be told.
      limits: {
        type: 'object',
        required: ['memory'],
        properties: { memory: { type: 'string', pattern: '^[0-9.]+(k|M|G|Ki|Mi|Gi)?$' } },
        additionalProperties: { type: ['string', 'number'] },
      },
    },
  },
  scheduling: {
    type: 'object',
    additionalProperties: false,
    properties: {
      nodeSelector: { type: 'object', additionalProperties: { type: 'string' } },
      tolerations: { type: 'array', items: { type: 'object' } },
      affinity: { type: 'object' },
      priorityClassName: { type: 'string' },
      topologySpreadConstraints: { type: 'array', items: { type: 'object' } },
    },
  },
};

/** @returns `{ key, path, words, default, type?, schema?, children? }` of every key, in the order of the file */
export function readValues(text) {
  const document = parseDocument(text);
  return describeMap(document.contents, [], document.commentBefore);
}

function describeMap(map, path) {
  return map.items.map((pair, index) => {
    const key = String(pair.key.value);
    // The comment of a map's first key lies at the map.
    const comment = pair.key.commentBefore ?? (index === 0 ? map.commentBefore : undefined) ?? '';
    const { words, type, schema } = readComment(comment);
    const children =
      isMap(pair.value) && !type && pair.value.items.length > 0 ? describeMap(pair.value, [...path, key]) : undefined;
    return { key, path: [...path, key], words, type, schema, children, default: pair.value?.toJSON() };
  });
}

function readComment(comment) {
  const lines = comment.split('\n').map((line) => line.replace(/^ /, ''));
  // A blank line ends what belongs to the file or to what came before.
  const own = lines.slice(lines.lastIndexOf('') + 1);
  const tagOf = (name) => own.find((line) => line.startsWith(`@${name} `))?.slice(name.length + 2);
  const type = tagOf('type');
  if (type && !(type in TYPES)) throw new Error(`values.yaml: there is no type ${type}`);
  const schema = tagOf('schema');
  const words = own.filter((line) => !line.startsWith('@')).join(' ');
  return { words, type, schema: schema && parse(schema) };
}

/** The closed JSON schema: a key that is not in values.yaml is refused. */
export function schemaOf(entries) {
  const root = objectSchema(entries);
  // Helm itself adds it where the chart is a part of another.
  root.properties.global = { type: 'object' };
  return { $schema: 'http://json-schema.org/draft-07/schema#', title: 'Values of the Margay chart', ...root };
}

function objectSchema(entries) {
  const properties = Object.fromEntries(entries.map((entry) => [entry.key, entrySchema(entry)]));
  return { type: 'object', additionalProperties: false, properties };
}

function entrySchema(entry) {
  const described = entry.words ? { description: entry.words } : {};
  if (entry.children) return { ...described, ...objectSchema(entry.children) };
  return { ...described, ...(entry.type ? TYPES[entry.type] : { type: typeOf(entry) }), ...entry.schema };
}

function typeOf({ default: value, path }) {
  if (typeof value === 'boolean' || typeof value === 'string') return typeof value;
  if (typeof value === 'number') return Number.isInteger(value) ? 'integer' : 'number';
  if (Array.isArray(value)) return 'array';
  throw new Error(`values.yaml: ${path.join('.')} needs a line "# @type …"`);
}

/** Lines of a table `key | default | meaning`, of every value that is no section. */
export function tableOf(entries) {
  return entries.flatMap((entry) => {
    if (entry.children) return [...(entry.words ? [sectionLine(entry)] : []), ...tableOf(entry.children)];
    const shown = JSON.stringify(entry.default);
    return [`| \`${entry.path.join('.')}\` | \`${escape(shown)}\` | ${escape(meaningOf(entry))} |`];
  });
}

const sectionLine = ({ path, words }) => `| **\`${path.join('.')}\`** | | ${escape(words)} |`;

function meaningOf({ words, schema, key }) {
  const choices = schema?.enum ? `One of ${schema.enum.map((value) => `\`${value}\``).join(', ')}.` : '';
  return [words || (COMMON[key] ?? ''), choices].filter(Boolean).join(' ');
}

/** Keys that stand in several sections are explained in the first. */
const COMMON = {
  replicas: 'Pods.',
  resources: 'Requests and limits; the heap is 75 % of the memory limit.',
  drainSeconds: 'Time for closing everything after SIGTERM.',
  graceSeconds: 'Time until a pod is killed; at least drainSeconds + 15.',
  scheduling: 'What differs from `pods.scheduling`.',
  extraEnv: 'Further variables of the container.',
  merge: 'Laid over the Deployment.',
  labels: 'Further labels.',
  annotations: 'Further annotations.',
  minReplicas: 'Fewest pods.',
  maxReplicas: 'Most pods.',
  modelPorts: 'Ports of the models.',
  apiServerPorts: 'Ports of the API server.',
  mongodbPorts: 'Ports of your own MongoDB.',
  blobsPorts: 'Ports of that server.',
  natsPorts: 'Ports of your own NATS.',
  httpToolsPorts: 'Ports of those services.',
  egressPorts: 'Ports of those pods.',
  otlpPorts: 'Ports of the collector.',
};

const escape = (text) => text.replaceAll('|', '\\|');
