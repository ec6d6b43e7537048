import { mkdir, rename, writeFile } from 'node:fs/promises';
import { request, type RequestOptions } from 'node:http';
import path from 'node:path';
import { text } from 'node:stream/consumers';

/** What the egress proxy itself answers, about the policy of whoever asks. */
const RESOURCE = 'http://egress.margay/git-hosts';
const FILE = 'gitconfig';
const TIMEOUT_MS = 2_000;
const RETRY_MS = 2_000;
const REFRESH_MS = 60_000;
const HOST = /^[a-z0-9_.-]+(:\d{1,5})?$/;

export interface ProxyDoor {
  socketFile?: string | undefined;
  url?: string | undefined;
}

/**
 * Has git speak https where a repository's address is one of ssh, which the proxy does not carry: for the hosts to which
 * the proxy adds git accounts. They come from the tenant's policy, so they are asked for once the session is known.
 */
export class GitRemotes {
  private timer: NodeJS.Timeout | undefined;
  private isStarted = false;

  constructor(
    private readonly door: ProxyDoor,
    private readonly folder: string,
  ) {}

  /** Variables that make git read the file, whenever it is there. */
  get environment(): Record<string, string> {
    if (this.door.socketFile === undefined && this.door.url === undefined) return {};
    return {
      GIT_CONFIG_COUNT: '1',
      GIT_CONFIG_KEY_0: 'include.path',
      GIT_CONFIG_VALUE_0: path.join(this.folder, FILE),
    };
  }

  /** Asks now and then on; idempotent. */
  start(): void {
    if (this.isStarted || Object.keys(this.environment).length === 0) return;
    this.isStarted = true;
    this.next(0);
  }

  stop(): void {
    this.isStarted = false;
    clearTimeout(this.timer);
  }

  private next(afterMs: number): void {
    if (!this.isStarted) return;
    const look = (): void =>
      void this.refresh().then(
        () => this.next(REFRESH_MS),
        () => this.next(RETRY_MS), // the proxy may not be there yet
      );
    this.timer = setTimeout(look, afterMs);
    this.timer.unref();
  }

  private async refresh(): Promise<void> {
    const hosts = (await ask(this.door)).split('\n').filter((host) => HOST.test(host));
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const file = path.join(this.folder, FILE);
    await writeFile(`${file}.new`, hosts.map(rewriteOf).join(''));
    await rename(`${file}.new`, file);
  }
}

function rewriteOf(address: string): string {
  const [host = ''] = address.split(':');
  const spellings = [`git@${host}:`, `ssh://git@${host}/`, `ssh://${host}/`, `ssh://git@${host}:22/`];
  return `[url "https://${address}/"]\n${spellings.map((spelling) => `\tinsteadOf = ${spelling}\n`).join('')}`;
}

async function ask(door: ProxyDoor): Promise<string> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ ...addressOf(door), path: RESOURCE, timeout: TIMEOUT_MS, agent: false }, (answer) => {
      if (answer.statusCode === 200) return text(answer).then(resolve, reject);
      answer.resume();
      return reject(new Error(`the proxy answered ${answer.statusCode}`));
    });
    outgoing.once('error', reject).once('timeout', () => outgoing.destroy(new Error('the proxy did not answer')));
    outgoing.end();
  });
}

function addressOf({ socketFile, url }: ProxyDoor): RequestOptions {
  if (url === undefined) return { socketPath: socketFile };
  const { hostname, port, username, password } = new URL(url);
  const user = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return { hostname, port, headers: { 'Proxy-Authorization': `Basic ${Buffer.from(user).toString('base64')}` } };
}
