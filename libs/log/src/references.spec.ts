import { packRecord, unpackRecord } from './references';

const LONG = 'a text that is long enough to be worth a reference, and a little longer';
const payloads = [{ text: 'short' }, { n: 1, result: LONG, text: `${LONG}!` }];
const frames = payloads.map((payload) => JSON.stringify({ ts: 'x', type: 'tool_result', payload }));

function roundTrip(record: object): unknown {
  return unpackRecord(packRecord(record, payloads), frames);
}

describe('records', () => {
  it('hold a long text of an event as a reference, wherever it stands in them', () => {
    const record = { kind: 'tool', text: LONG, parts: [{ inner: LONG }, [`${LONG}!`]] };
    expect(packRecord(record, payloads)).toBe(
      '{"kind":"tool","text":{"$event":[1,"result"]},"parts":[{"inner":{"$event":[1,"result"]}},[{"$event":[1,"text"]}]]}',
    );
    expect(roundTrip(record)).toEqual(record);
  });

  it('hold short texts and other texts themselves', () => {
    const record = { kind: 'note', text: 'short', other: `${LONG}?`, n: null, deep: { yes: true, list: [] } };
    expect(packRecord(record, payloads)).toBe(JSON.stringify(record));
    expect(roundTrip(record)).toEqual(record);
  });

  it.each([
    { kind: 'tool', result: { $event: [1, 'result'] } },
    { kind: 'tool', result: { $event: [0, 'text'], text: LONG } },
    { kind: 'tool', result: { $$event: 'x', $event: { $event: [] } } },
    { kind: 'tool', text: 'a text with "$event" in it', $event: null },
  ])('keep data that looks like a reference: %j', (record) => {
    expect(roundTrip(record)).toEqual(record);
    expect(unpackRecord(packRecord(record, []), [])).toEqual(record);
  });

  it('keep keys that mean something to JavaScript', () => {
    const record = JSON.parse(`{"kind":"x","__proto__":{"text":"${LONG}"},"constructor":1}`) as object;
    expect(JSON.stringify(roundTrip(record))).toBe(JSON.stringify(record));
  });
});
