/** Shorter texts are stored twice rather than referenced. */
const MIN_REFERENCE_CHARS = 64;

/** Where a text of a private record is stored once already: field `f` of event `i` of the same commit. */
interface EventReference {
  $event: [i: number, f: string];
}

function isEventReference(value: object): value is EventReference {
  return '$event' in value;
}

/** A key of the data itself that looks like a reference gets one more dollar, so that nobody can forge one. */
const LOOKS_LIKE_REFERENCE = /^\$+event$/;
const escapeKey = (key: string): string => (LOOKS_LIKE_REFERENCE.test(key) ? `$${key}` : key);
const unescapeKey = (key: string): string => (LOOKS_LIKE_REFERENCE.test(key) ? key.slice(1) : key);

type Json = string | number | boolean | null | undefined | Json[] | { [key: string]: Json };

interface Mapping {
  onText: (text: string) => Json;
  /** What stands for a whole object; undefined: its fields are mapped. */
  onObject: (object: object) => Json | undefined;
  onKey: (key: string) => string;
}

function map(value: Json, mapping: Mapping): Json {
  if (typeof value === 'string') return mapping.onText(value);
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map((item) => map(item, mapping));
  const replaced = mapping.onObject(value);
  if (replaced !== undefined) return replaced;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [mapping.onKey(key), map(item, mapping)]));
}

/**
 * JSON text of a record in which each long text that equals a text field of one of the payloads is a reference to it.
 * @param payloads payloads of the commit's events, in order
 */
export function packRecord(record: object, payloads: readonly object[]): string {
  const places = textPlaces(payloads);
  const plain = JSON.stringify(record);
  if (places.size === 0 && !plain.includes('$event"')) return plain;
  const onText = (text: string): Json => {
    const place = text.length >= MIN_REFERENCE_CHARS ? places.get(text) : undefined;
    return place ? { $event: place } : text;
  };
  return JSON.stringify(map(record as Json, { onText, onObject: () => undefined, onKey: escapeKey }));
}

type TextPlaces = ReadonlyMap<string, [number, string]>;

/** All records of a commit ask about the same payloads: looked through for each, a commit would cost its square. */
const placesOfPayloads = new WeakMap<readonly object[], TextPlaces>();

function textPlaces(payloads: readonly object[]): TextPlaces {
  const known = placesOfPayloads.get(payloads);
  if (known) return known;
  const places = findTextPlaces(payloads);
  placesOfPayloads.set(payloads, places);
  return places;
}

function findTextPlaces(payloads: readonly object[]): TextPlaces {
  const places = new Map<string, [number, string]>();
  payloads.forEach((payload, index) => {
    for (const [field, value] of Object.entries(payload)) {
      if (typeof value === 'string' && value.length >= MIN_REFERENCE_CHARS && !places.has(value))
        places.set(value, [index, field]);
    }
  });
  return places;
}

/**
 * The record of a JSON text made by `packRecord`, its references resolved.
 * @param frames frames of the same commit's events, in order
 */
export function unpackRecord(text: string, frames: readonly string[]): { kind: string; [field: string]: unknown } {
  const record = JSON.parse(text) as Json;
  if (!text.includes('$event"')) return record as never;
  const onObject = (object: object): Json | undefined => {
    if (!isEventReference(object)) return undefined;
    const [index, field] = object.$event;
    const frame = JSON.parse(frames[index] ?? '{}') as { payload?: Record<string, string> };
    return frame.payload?.[field] ?? '';
  };
  return map(record, { onText: (value) => value, onObject, onKey: unescapeKey }) as never;
}
