/** Shorter texts are stored twice rather than referenced. */
const MIN_REFERENCE_CHARS = 64;

/** Where a text of a private record is stored once already: field `f` of event `i` of the same commit. */
interface EventReference {
  $event: [i: number, f: string];
}

function isEventReference(value: object): value is EventReference {
  return '$event' in value && Array.isArray(value.$event);
}

type Json = string | number | boolean | null | undefined | Json[] | { [key: string]: Json };

function mapTexts(value: Json, onText: (text: string) => Json, onObject: (object: object) => Json | undefined): Json {
  if (typeof value === 'string') return onText(value);
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map((item) => mapTexts(item, onText, onObject));
  const replaced = onObject(value);
  if (replaced !== undefined) return replaced;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, mapTexts(item, onText, onObject)]));
}

/**
 * JSON text of a record in which each long text that equals a text field of one of the payloads is a reference to it.
 * @param payloads payloads of the commit's events, in order
 */
export function packRecord(record: object, payloads: readonly object[]): string {
  const places = textPlaces(payloads);
  if (places.size === 0) return JSON.stringify(record);
  const onText = (text: string): Json => {
    const place = text.length >= MIN_REFERENCE_CHARS ? places.get(text) : undefined;
    return place ? { $event: place } : text;
  };
  return JSON.stringify(mapTexts(record as Json, onText, () => undefined));
}

function textPlaces(payloads: readonly object[]): Map<string, [number, string]> {
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
  if (!text.includes('"$event"')) return record as never;
  const onObject = (object: object): Json | undefined => {
    if (!isEventReference(object)) return undefined;
    const [index, field] = object.$event;
    const frame = JSON.parse(frames[index] ?? '{}') as { payload?: Record<string, string> };
    return frame.payload?.[field] ?? '';
  };
  return mapTexts(record, (value) => value, onObject) as never;
}
