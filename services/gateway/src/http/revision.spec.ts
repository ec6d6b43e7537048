import { ANY_REV } from '@margay/contracts';
import { etagOf, wantedEtag, wantedRev } from './revision';

describe('the revision that a request wants', () => {
  it.each<[string | undefined, string | undefined, number | undefined]>([
    [undefined, undefined, undefined],
    ['"3"', undefined, 3],
    [' "3" ', undefined, 3],
    ['W/"3"', undefined, 3],
    ['*', undefined, ANY_REV],
    [undefined, '*', 0],
  ])('of If-Match %s and If-None-Match %s is %s', (ifMatch, ifNoneMatch, rev) => {
    expect(wantedRev(ifMatch, ifNoneMatch)).toBe(rev);
  });

  it.each(['3', '', '"3', '"3","4"', 'w/"3"', '"a b"'])('is none for what is no ETag: %s', (ifMatch) => {
    expect(() => wantedRev(ifMatch)).toThrow(expect.objectContaining({ reason: 'validation' }) as Error);
  });

  it.each(['"0"', '"03"', '"abc"', '""', '"99999999999"'])('is never reached by another ETag: %s', (ifMatch) => {
    expect(() => wantedRev(ifMatch)).toThrow(expect.objectContaining({ reason: 'rev_moved' }) as Error);
  });

  it('is told to others as the ETag that was sent', () => {
    expect([undefined, '*', 'W/"3"', '"3"'].map(wantedEtag)).toEqual(['', '', etagOf({ rev: 3 }).etag, '"3"']);
  });
});
