import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseServices } from './service-names';
import { VERSION } from './version';

describe('parseServices', () => {
  it('puts the services into their starting order, each once, the gateway last', () => {
    expect(parseServices(['--services', 'gateway, channel,session,channel'])).toEqual([
      'channel',
      'session',
      'gateway',
    ]);
    expect(parseServices(['--services=agent-runner'])).toEqual(['agent-runner']);
  });

  it('guesses what an unknown name was meant to be, for all of them at once', () => {
    const attempt = () => parseServices(['--services', 'gatway,sesion,frobnicator']);
    expect(attempt).toThrow('There is no service "gatway"; did you mean gateway?');
    expect(attempt).toThrow('There is no service "sesion"; did you mean session?');
    expect(attempt).toThrow('There is no service "frobnicator"; there are egress, tool-executor,');
  });

  it.each([
    [[]],
    [['--services']],
    [['--services', '']],
    [['--service', 'gateway']],
    [['--services', 'session', 'gateway']],
  ])('shows the usage for %j', (argv) => {
    expect(() => parseServices(argv)).toThrow('Usage: main --services');
  });
});

describe('VERSION', () => {
  it('is the version of the root package', () => {
    const manifest = JSON.parse(readFileSync(join(__dirname, '../../../package.json'), 'utf8')) as { version: string };
    expect(VERSION).toBe(manifest.version);
  });
});
