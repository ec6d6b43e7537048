import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import path from 'node:path';

/** For specs: repositories that git's own server program serves to whoever shows the right user and token. */
export class GitHost {
  /** What was asked for, with the user that asked. */
  readonly asked: string[] = [];

  constructor(
    private readonly root: string,
    private readonly account: { username: string; token: string },
  ) {}

  /** A repository that others may push to, with one file in it. */
  create(name: string, file: { name: string; text: string }): void {
    const work = path.join(this.root, 'work', name);
    const bare = path.join(this.root, 'bare', `${name}.git`);
    mkdirSync(work, { recursive: true });
    this.git(work, 'init', '-q', '-b', 'main');
    writeFileSync(path.join(work, file.name), file.text);
    this.git(work, 'add', '.');
    this.git(work, '-c', 'user.name=a', '-c', 'user.email=a@example.com', 'commit', '-q', '-m', 'first');
    this.git(work, 'clone', '-q', '--bare', work, bare);
    this.git(bare, 'config', 'http.receivepack', 'true');
  }

  headOf(name: string): string {
    return this.git(path.join(this.root, 'bare', `${name}.git`), 'rev-parse', 'main');
  }

  readonly listener: RequestListener = (request, response) => {
    const user = userOf(request);
    this.asked.push(`${user.split(':')[0] || '-'} ${request.method} ${request.url}`);
    if (user !== `${this.account.username}:${this.account.token}`) {
      response.writeHead(401, { 'WWW-Authenticate': 'Basic realm="git"' }).end();
      return;
    }
    this.serve(request, response);
  };

  private serve(request: IncomingMessage, response: ServerResponse): void {
    const url = new URL(`https://git.invalid${request.url}`);
    const program = spawn('git', ['http-backend'], {
      env: {
        PATH: '/usr/local/bin:/usr/bin:/bin',
        GIT_PROJECT_ROOT: path.join(this.root, 'bare'),
        GIT_HTTP_EXPORT_ALL: '1',
        GIT_CONFIG_COUNT: '1',
        GIT_CONFIG_KEY_0: 'safe.directory',
        GIT_CONFIG_VALUE_0: '*',
        PATH_INFO: url.pathname,
        QUERY_STRING: url.search.slice(1),
        REQUEST_METHOD: request.method,
        REMOTE_USER: this.account.username,
        CONTENT_TYPE: request.headers['content-type'],
        HTTP_CONTENT_ENCODING: request.headers['content-encoding'],
        GIT_PROTOCOL: request.headers['git-protocol'] as string | undefined,
      },
    });
    program.stdin.on('error', () => undefined);
    request.pipe(program.stdin);
    let head = Buffer.alloc(0);
    const onHead = (chunk: Buffer): void => {
      head = Buffer.concat([head, chunk]);
      const end = head.indexOf('\r\n\r\n');
      if (end < 0) return;
      program.stdout.off('data', onHead);
      const lines = head.subarray(0, end).toString().split('\r\n');
      const headers = lines.map((line) => line.split(/: /, 2) as [string, string]);
      const status = headers.find(([name]) => name === 'Status')?.[1] ?? '200';
      response.writeHead(parseInt(status, 10), Object.fromEntries(headers.filter(([name]) => name !== 'Status')));
      response.write(head.subarray(end + 4));
      program.stdout.pipe(response);
    };
    program.stdout.on('data', onHead);
  }

  private git(folder: string, ...args: string[]): string {
    return execFileSync('git', ['-c', 'safe.directory=*', ...args], { cwd: folder, encoding: 'utf8' }).trim();
  }
}

function userOf({ headers }: IncomingMessage): string {
  const [, encoded = ''] = /^Basic (.+)$/.exec(headers.authorization ?? '') ?? [];
  return Buffer.from(encoded, 'base64').toString();
}
