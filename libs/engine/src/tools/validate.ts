import Ajv, { type ErrorObject, type ValidateFunction } from 'ajv';
import Ajv2020 from 'ajv/dist/2020';

const COMPILED_MAX = 2_000;
const MESSAGES_MAX = 5;

const OPTIONS = {
  strict: false,
  allErrors: true,
  validateFormats: false,
  validateSchema: false,
  logger: false,
} as const;

/** Compiled schemas by their text; the oldest go first. */
const compiled = new Map<string, ValidateFunction>();
const bySchema = new WeakMap<object, ValidateFunction>();

/** What is wrong with these arguments, in words for the model; undefined if nothing is. */
export function findFaults(schema: Record<string, unknown>, args: Record<string, unknown>): string | undefined {
  const validate = bySchema.get(schema) ?? compile(schema);
  if (validate(args)) return undefined;
  const words = (validate.errors ?? []).map(inWords);
  return [...new Set(words)].slice(0, MESSAGES_MAX).join('; ');
}

function compile(schema: Record<string, unknown>): ValidateFunction {
  const text = JSON.stringify(schema);
  const validate = compiled.get(text) ?? compileText(text);
  if (compiled.size >= COMPILED_MAX) compiled.delete(compiled.keys().next().value ?? '');
  compiled.set(text, validate);
  bySchema.set(schema, validate);
  return validate;
}

/** Schemas come from anywhere: the newest draft is tried first, then draft 7; one that is neither checks nothing. */
function compileText(text: string): ValidateFunction {
  const { $schema, ...schema } = JSON.parse(text) as Record<string, unknown>;
  const isOld = typeof $schema === 'string' && /draft-0[4-7]/.test($schema);
  for (const Draft of isOld ? [Ajv] : [Ajv2020, Ajv]) {
    const validate = tryCompile(() => new Draft(OPTIONS).compile(schema));
    if (validate) return validate;
  }
  return new Ajv(OPTIONS).compile({});
}

function tryCompile(compileIt: () => ValidateFunction): ValidateFunction | undefined {
  try {
    return compileIt();
  } catch {
    return undefined; // another draft may understand it
  }
}

function inWords({ keyword, instancePath, message, params }: ErrorObject): string {
  const where = instancePath === '' ? 'the arguments' : instancePath.slice(1).replaceAll('/', '.');
  const facts = params as Record<string, unknown>;
  if (keyword === 'required') return `missing required field '${joined(instancePath, facts['missingProperty'])}'`;
  if (keyword === 'additionalProperties') return `unknown field '${joined(instancePath, facts['additionalProperty'])}'`;
  if (keyword === 'enum') return `${where} must be one of ${JSON.stringify(facts['allowedValues'])}`;
  return `${where} ${message ?? 'is invalid'}`;
}

function joined(instancePath: string, field: unknown): string {
  return [...instancePath.slice(1).split('/').filter(Boolean), String(field)].join('.');
}
