import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePorts } from '@margay/launcher';

const PLACES = ['/usr/sbin/nginx', '/usr/local/sbin/nginx', '/usr/bin/nginx', '/opt/homebrew/bin/nginx'];

export const nginxBinary = PLACES.find((path) => existsSync(path));

export interface NginxOptions {
  upstream: string;
  /** The proxy gives an upstream up that is silent for so long. */
  readTimeoutSeconds: number;
}

/** nginx in front of a gateway as people run it: HTTP/1.1 upstream, compression of everything, buffering left on. */
export class NginxProxy {
  private constructor(
    readonly url: string,
    private readonly child: ChildProcess,
    private readonly directory: string,
  ) {}

  static async start(binary: string, options: NginxOptions): Promise<NginxProxy> {
    const [port] = (await freePorts(1)) as [number];
    const directory = await mkdtemp(join(tmpdir(), 'margay-nginx-'));
    await mkdir(join(directory, 'logs'));
    const file = join(directory, 'nginx.conf');
    await writeFile(file, configuration(port, directory, options, buildOptions(binary)));
    const child = spawn(binary, ['-p', directory, '-e', 'stderr', '-c', file], { stdio: ['ignore', 'ignore', 'pipe'] });
    let complaints = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => (complaints += text));
    const proxy = new NginxProxy(`http://127.0.0.1:${port}`, child, directory);
    for (let tries = 0; !(await answers(port)); tries += 1) {
      if (tries === 200 || child.exitCode !== null) throw new Error(`nginx does not start: ${complaints}`);
      await sleep(50);
    }
    return proxy;
  }

  async stop(): Promise<void> {
    if (this.child.exitCode === null) {
      const exited = new Promise((resolve) => this.child.once('exit', resolve));
      this.child.kill('SIGKILL');
      await exited;
    }
    await rm(this.directory, { recursive: true, force: true });
  }
}

function buildOptions(binary: string): string {
  return spawnSync(binary, ['-V'], { encoding: 'utf8' }).stderr;
}

function configuration(port: number, directory: string, options: NginxOptions, build: string): string {
  const { upstream, readTimeoutSeconds } = options;
  // Modules that are built in want a folder each, and by default one that only root may make.
  const others = ['fastcgi', 'uwsgi', 'scgi'].filter((module) => !build.includes(`--without-http_${module}_module`));
  const folders = ['client_body', 'proxy', ...others].map((name) => `${name}_temp_path ${join(directory, name)};`);
  return `
daemon off;
master_process off;
error_log stderr error;
pid ${join(directory, 'nginx.pid')};
events { worker_connections 256; }
http {
  access_log off;
  ${folders.join('\n  ')}
  gzip on;
  gzip_proxied any;
  gzip_min_length 0;
  gzip_types *;
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass ${upstream};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_read_timeout ${readTimeoutSeconds}s;
    }
  }
}
`;
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}
