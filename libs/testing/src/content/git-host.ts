import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:https';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { certify, newKeyPair } from '@margay/platform/certificates';

const DAY_MS = 24 * 3_600_000;
const USER = { GIT_AUTHOR_NAME: 'a', GIT_AUTHOR_EMAIL: 'a@example.com', GIT_COMMITTER_NAME: 'a' };

/** For specs: a host of repositories on this machine, by https, as git's own server program serves them. */
export class GitHost {
  /** User (`-` for none), method and address of all requests. */
  readonly asked: string[] = [];
  readonly folder = mkdtempSync(path.join(tmpdir(), 'margay-git-'));
  readonly caFile = path.join(this.folder, 'ca.pem');
  /** What it answers instead of a repository's bytes. */
  refusal?: number;
  private held?: (() => void)[];
  private server?: Server;

  /** @param account who may fetch and push; without one everybody may fetch */
  constructor(private readonly account?: { username: string; token: string }) {}

  get port(): number {
    return (this.server?.address() as AddressInfo).port;
  }

  async start(): Promise<this> {
    const [authority, keys] = [newKeyPair(), newKeyPair()];
    const issuer = { subject: 'spec', keys: authority };
    const times = { notBeforeMs: Date.now() - DAY_MS, notAfterMs: Date.now() + DAY_MS };
    const ca = certify({
      subject: 'spec',
      publicKey: authority.publicKey,
      issuer,
      ...times,
      use: { kind: 'authority' },
    });
    const use = { kind: 'server', names: ['localhost', 'git.example.com'] } as const;
    const cert = certify({ subject: 'localhost', publicKey: keys.publicKey, issuer, ...times, use });
    writeFileSync(this.caFile, ca);
    const key = keys.privateKey.export({ type: 'pkcs8', format: 'pem' });
    this.server = createServer({ key, cert }, (request, response) => this.serve(request, response));
    await new Promise<void>((resolve) => this.server?.listen(0, '127.0.0.1', resolve));
    return this;
  }

  /** @param host `git.example.com` where something on the way leads to this machine */
  url(name: string, host: 'localhost' | 'git.example.com' = 'localhost'): string {
    return `https://${host}:${this.port}/${name}`;
  }

  /** A repository with these files in one commit on `main`. @returns the commit */
  make(name: string, files: Record<string, string | Buffer>): string {
    const bare = path.join(this.folder, 'served', name);
    const work = path.join(this.folder, `work-${name}`);
    git(this.folder, 'init', '-q', '--bare', '-b', 'main', bare);
    git(bare, 'config', 'uploadpack.allowAnySHA1InWant', 'true');
    if (this.account) git(bare, 'config', 'http.receivepack', 'true');
    git(this.folder, 'init', '-q', '-b', 'main', work);
    return this.commit(name, files);
  }

  commit(name: string, files: Record<string, string | Buffer>): string {
    const work = path.join(this.folder, `work-${name}`);
    for (const [file, content] of Object.entries(files)) {
      mkdirSync(path.dirname(path.join(work, file)), { recursive: true });
      writeFileSync(path.join(work, file), content);
    }
    git(work, 'add', '-A');
    git(work, 'commit', '-q', '-m', 'change');
    git(work, 'push', '-q', path.join(this.folder, 'served', name), 'HEAD:main');
    return git(work, 'rev-parse', 'HEAD').trim();
  }

  headOf(name: string): string {
    return git(path.join(this.folder, 'served', name), 'rev-parse', 'main').trim();
  }

  /** Runs git in the tree that commits are made of. */
  inWork(name: string, ...words: string[]): string {
    return git(path.join(this.folder, `work-${name}`), ...words);
  }

  /** Requests hang from now on. */
  hold(): void {
    this.held ??= [];
  }

  /** They are answered after all. */
  letGo(): void {
    const held = this.held ?? [];
    delete this.held;
    for (const serve of held) serve();
  }

  async stop(): Promise<void> {
    this.server?.closeAllConnections();
    await new Promise((resolve) => this.server?.close(resolve));
    rmSync(this.folder, { recursive: true, force: true });
  }

  private serve(request: IncomingMessage, response: ServerResponse): void {
    if (this.held) return void this.held.push(() => this.serve(request, response));
    const [username, token] = accountOf(request);
    this.asked.push(`${username || '-'} ${request.method} ${request.url}`);
    const isKnown = !this.account || (username === this.account.username && token === this.account.token);
    const refusal = this.refusal ?? (isKnown ? undefined : 401);
    if (refusal !== undefined) {
      response.writeHead(refusal, { 'www-authenticate': 'Basic realm="spec"' }).end();
      return;
    }
    const { pathname, search } = new URL(request.url ?? '/', 'https://localhost');
    const environment = {
      ...process.env,
      GIT_PROJECT_ROOT: path.join(this.folder, 'served'),
      GIT_HTTP_EXPORT_ALL: '1',
      GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
      REQUEST_METHOD: request.method,
      PATH_INFO: pathname,
      QUERY_STRING: search.slice(1),
      CONTENT_TYPE: request.headers['content-type'] ?? '',
      HTTP_CONTENT_ENCODING: request.headers['content-encoding'] ?? '',
    };
    const program = spawn('git', ['http-backend'], { env: environment, stdio: ['pipe', 'pipe', 'ignore'] });
    request.pipe(program.stdin).on('error', () => undefined); // it needs no body
    const chunks: Buffer[] = [];
    program.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
    program.once('close', () => answer(Buffer.concat(chunks), response));
  }
}

function accountOf({ headers }: IncomingMessage): string[] {
  const [, encoded = ''] = /^Basic (.+)$/.exec(headers.authorization ?? '') ?? [];
  return Buffer.from(encoded, 'base64').toString().split(':');
}

/** What a program says by the rules of CGI. */
function answer(said: Buffer, response: ServerResponse): void {
  const end = said.indexOf('\r\n\r\n');
  const lines = said.subarray(0, end).toString().split('\r\n');
  const headers = lines.map((line): [string, string] => [line.replace(/:.*/, ''), line.replace(/^[^:]*:\s*/, '')]);
  const status = headers.find(([name]) => name === 'Status')?.[1] ?? '200';
  response.writeHead(Number(status.slice(0, 3)), Object.fromEntries(headers.filter(([name]) => name !== 'Status')));
  response.end(said.subarray(end + 4));
}

function git(cwd: string, ...words: string[]): string {
  const env = { ...process.env, ...USER, GIT_COMMITTER_EMAIL: 'a@example.com', GIT_CONFIG_GLOBAL: '/dev/null' };
  const { status, stdout, stderr } = spawnSync('git', words, { cwd, env, encoding: 'utf8' });
  if (status !== 0) throw new Error(`git ${words.join(' ')}: ${stderr}`);
  return stdout;
}
