import { requestHeaders, responseHeaders } from './headers';

describe('headers that are passed on', () => {
  it('leave out what belongs to a connection or to the proxy, and name the host that was judged', () => {
    const raw = [
      ...['Host', 'evil.example', 'Connection', 'keep-alive, X-Hop, Content-Length', 'X-Hop', '1', 'X-Kept', '2'],
      ...['Proxy-Authorization', 'Basic abc', 'Upgrade', 'h2c', 'TE', 'trailers', 'Content-Length', '3'],
    ];
    expect(requestHeaders(raw, 'a.example')).toEqual([
      ...['Host', 'a.example', 'X-Kept', '2', 'Content-Length', '3', 'Connection', 'close'],
    ]);
  });

  it('frame a body of unknown length anew', () => {
    expect(requestHeaders(['Transfer-Encoding', 'gzip, chunked'], 'a.example')).toEqual([
      ...['Host', 'a.example', 'Transfer-Encoding', 'chunked', 'Connection', 'close'],
    ]);
  });

  it('let no host answer in the name of the proxy', () => {
    expect(responseHeaders(['X-Margay-Egress', 'egress_denied', 'Set-Cookie', 'a', 'Set-Cookie', 'b'])).toEqual([
      ...['Set-Cookie', 'a', 'Set-Cookie', 'b'],
    ]);
  });
});
