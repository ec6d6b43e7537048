import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isMargayError } from '@margay/errors';
import { z } from 'zod';
import { createLogger } from '../logging/logger';
import { parseConfig } from './parse-config';

const schema = z.object({
  MARGAY_NATS_URL: z.url(),
  MARGAY_MASTER_TOKEN: z.string().min(8).describe('at least 8 characters').optional(),
  MARGAY_RUNNER_SLOTS: z.coerce.number().int().positive().default(500),
  MARGAY_BOOTSTRAP_KEY_FILE: z.string().optional(),
});
const good = { MARGAY_NATS_URL: 'nats://127.0.0.1:4222' };

const failureOf = (env: NodeJS.ProcessEnv) => {
  try {
    parseConfig(schema, env);
  } catch (error) {
    if (isMargayError(error)) return error;
    throw error;
  }
  throw new Error('expected a failure');
};

describe('parseConfig', () => {
  let directory: string;
  beforeAll(() => (directory = mkdtempSync(join(tmpdir(), 'margay-config-'))));
  afterAll(() => rmSync(directory, { recursive: true }));

  it('returns typed values with defaults, deeply frozen', () => {
    const nested = z.object({
      MARGAY_PROJECTS: z.string().transform((text) => JSON.parse(text) as { a: { b: number } }),
    });
    const config = parseConfig(nested, { MARGAY_PROJECTS: '{"a":{"b":1}}' });
    expect(Object.isFrozen(config.MARGAY_PROJECTS.a)).toBe(true);
    expect(parseConfig(schema, good)).toEqual({ ...good, MARGAY_RUNNER_SLOTS: 500 });
  });

  it('lists all faulty names and no value', () => {
    const error = failureOf({ MARGAY_RUNNER_SLOTS: 'canary-1', MARGAY_MASTER_TOKEN: 'canary2' });
    expect(error).toMatchObject({ code: 'INVALID_ARGUMENT', reason: 'bad_environment' });
    expect(error.message).toContain('MARGAY_NATS_URL (missing)');
    expect(error.message).toContain('MARGAY_RUNNER_SLOTS (not usable)');
    expect(error.message).toContain('MARGAY_MASTER_TOKEN (not usable: at least 8 characters)');
    expect(JSON.stringify([error.message, error.details])).not.toContain('canary');
  });

  it('counts an empty text as unset', () => {
    expect(parseConfig(schema, { ...good, MARGAY_RUNNER_SLOTS: '' }).MARGAY_RUNNER_SLOTS).toBe(500);
  });

  it('reads a value from <NAME>_FILE without its last line end', () => {
    const path = join(directory, 'token');
    writeFileSync(path, 'from-a-file\n');
    expect(parseConfig(schema, { ...good, MARGAY_MASTER_TOKEN_FILE: path }).MARGAY_MASTER_TOKEN).toBe('from-a-file');
  });

  it('refuses a name given twice and a file that cannot be read', () => {
    const path = join(directory, 'absent');
    expect(
      failureOf({ ...good, MARGAY_MASTER_TOKEN: 'x'.repeat(9), MARGAY_MASTER_TOKEN_FILE: path }).message,
    ).toContain('MARGAY_MASTER_TOKEN (also given as MARGAY_MASTER_TOKEN_FILE');
    expect(failureOf({ ...good, MARGAY_MASTER_TOKEN_FILE: path }).message).toContain(
      'MARGAY_MASTER_TOKEN_FILE (its file cannot be read: ENOENT)',
    );
  });

  it('takes a variable whose own name ends in _FILE as it is', () => {
    const env = { ...good, MARGAY_BOOTSTRAP_KEY_FILE: '/nowhere' };
    expect(parseConfig(schema, env).MARGAY_BOOTSTRAP_KEY_FILE).toBe('/nowhere');
  });

  it('keeps values of variables that hold secrets out of logs', () => {
    parseConfig(z.object({ MARGAY_ODD_PASSWORD: z.string() }), { MARGAY_ODD_PASSWORD: 'unguessable-word' });
    const lines: string[] = [];
    createLogger({ write: (line) => void lines.push(line) }).warn({ note: 'it is unguessable-word' }, 'odd');
    expect(lines.join()).toContain('it is [secret:MARGAY_ODD_PASSWORD]');
  });
});
