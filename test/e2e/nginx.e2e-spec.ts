import { setTimeout as sleep } from 'node:timers/promises';
import { PlatformHarness } from './harness';
import { callStart, LogWriter, note, WRITER_ENV } from './streams/log-writer';
import { isLong } from './streams/long-tests';
import { nginxBinary, NginxProxy } from './streams/nginx-proxy';
import { seqOf, StreamClient, type Block } from './streams/stream-client';

// Long: nginx and Margay as they come, ten minutes of silence. Short: the same in proportion.
const READ_TIMEOUT_SECONDS = isLong ? 60 : 8;
const HEARTBEAT_SECONDS = isLong ? 15 : 1;
const SILENCE_MS = isLong ? 10 * 60_000 : 18_000;

jest.setTimeout(SILENCE_MS + 120_000);
if (!nginxBinary) process.stdout.write('skipped: streams behind nginx, which is not installed here (apt-get install nginx-light)\n'); // prettier-ignore

(nginxBinary ? describe : describe.skip)('pain 10: behind nginx that compresses and gives up silent upstreams', () => {
  const margay = new PlatformHarness({
    mode: 'combined',
    runners: 0,
    env: { ...WRITER_ENV, MARGAY_STREAM_HEARTBEAT_SECONDS: String(HEARTBEAT_SECONDS) },
  });
  let writer: LogWriter;
  let proxy: NginxProxy;

  beforeAll(async () => {
    await margay.start();
    writer = await LogWriter.start(margay);
    proxy = await NginxProxy.start(nginxBinary as string, {
      upstream: margay.platform.gatewayUrl,
      readTimeoutSeconds: READ_TIMEOUT_SECONDS,
    });
  }, 600_000);
  afterAll(async () => {
    await proxy?.stop();
    await writer?.stop();
    await margay.stop();
  });

  const open = (sessionId: string, onBlock?: (block: Block) => void) =>
    StreamClient.open({
      url: `${proxy.url}/api/sessions/${sessionId}/stream`,
      headers: { 'x-api-key': margay.platform.apiKey, 'accept-encoding': 'gzip' },
      ...(onBlock && { onBlock }),
    });

  it('a stream outlives a tool that says nothing for far longer, and has every event', async () => {
    const run = await writer.take(await margay.client.sessions.create({}));
    const seqs: number[] = [];
    const client = await open(run.sessionId, ({ data }) => void (seqOf(data) && seqs.push(seqOf(data) ?? 0)));
    await client.until((text) => text.includes('"type":"session_state"'));
    await run.write(note('the tool begins'));
    await sleep(SILENCE_MS);
    await run.write(note('the tool ends'));
    await run.finish();
    await client.done;
    expect(client.ended).toBe('clean');
    expect(client.text.match(/"type":"stream_end"/g)).toHaveLength(1);
    expect(seqs).toEqual(seqs.map((_, index) => index + 1));
    expect(client.text).toContain('the tool ends');
    expect(client.text).toContain(': heartbeat');
  });

  it('each token arrives before anything else is sent, though the answer is compressed', async () => {
    const run = await writer.take(await margay.client.sessions.create({}));
    const client = await open(run.sessionId);
    await client.until((text) => text.includes('"type":"session_state"'));
    expect(client.response.headers['content-encoding']).toBe('gzip');
    await run.write(callStart());
    await client.until((text) => text.includes('"llm_call_start"'));
    let pushed = 0;
    for (let offset = 0; offset < 10; offset += 1) {
      const before = client.text.length;
      run.delta(`${offset}`, offset);
      await client.until((text) => text.includes(`"text":"${offset}"`));
      // Whatever was buffered would have come with the next heartbeat only, and that behind it.
      const arrived = client.text.slice(before);
      if (arrived.lastIndexOf(': heartbeat') > arrived.indexOf(`"text":"${offset}"`)) pushed += 1;
    }
    expect(pushed).toBeLessThan(3);
    await run.finish();
    await client.done;
  });
});
