import { blobsOf } from './blob-references';

const ID = 'a'.repeat(64);
const OTHER = 'b'.repeat(64);
const of = (frames: object[], records: object[] = []) =>
  blobsOf({
    events: frames.map((frame, index) => ({ seq: index, ts: index, frame: JSON.stringify(frame) })),
    records: records.map((record) => JSON.stringify(record)),
  });

describe('blobsOf', () => {
  it('finds what events and records refer to, each once', () => {
    const reference = { id: ID, bytes: 1, sha256: ID };
    const frames = [{ payload: { text: 'x', text_truncated: true, text_blob: reference } }, { payload: { result_blob: reference } }]; // prettier-ignore
    expect(of(frames, [{ kind: 'end', text: { $blob: ID } }, { kind: 'tool', parts: [{ $blob: OTHER }] }])).toEqual([ID, OTHER]); // prettier-ignore
  });

  it('finds it wherever the id stands in the reference', () => {
    expect(of([{ payload: { text_blob: { bytes: 1, sha256: OTHER, id: ID } } }])).toEqual([ID]);
  });

  it('takes no text for a reference that only looks like one', () => {
    const text = `{"$blob":"${ID}","x_blob":{"id":"${ID}"}}`;
    expect(of([{ payload: { text, sha256: ID } }], [{ kind: 'tool', text, $$blob: ID }, { sha256: ID }])).toEqual([]);
  });
});
