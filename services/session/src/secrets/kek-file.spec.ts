import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLogger } from '@margay/platform';
import { KekFile } from './kek-file';

const place = { tenantId: 't', collection: 'tenants', id: 't', field: 'deks.a', rev: 0 };
const newKey = () => randomBytes(32).toString('base64');
const [k1, k2] = [newKey(), newKey()];
const data = randomBytes(32);
let folder: string;
let file: string;
let lines: string[];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'margay-kek-'));
  file = join(folder, 'kek.json');
  lines = [];
});
afterEach(() => rm(folder, { recursive: true }));

const logger = createLogger({ service: 'spec', level: 'debug', write: (line) => lines.push(line) });
const write = (content: unknown) => writeFile(file, typeof content === 'string' ? content : JSON.stringify(content));
async function opened(content: unknown = { active: 'k1', keys: { k1 } }): Promise<KekFile> {
  await write(content);
  return KekFile.open(file, logger);
}

describe('the file of key-encryption keys', () => {
  it('wraps with the active key and opens what each of its keys has wrapped', async () => {
    const old = await (await opened()).wrap(data, place);
    const both = await opened({ active: 'k2', keys: { k1, k2 } });
    expect((await both.wrap(data, place)).kid).toBe('k2');
    expect(await both.unwrap(old, place)).toEqual(data);
    await expect(both.unwrap({ ...old, kid: 'k2' }, place)).rejects.toMatchObject({ reason: 'unreadable_ciphertext' });
    await expect(both.unwrap(old, { ...place, id: 'u' })).rejects.toMatchObject({ reason: 'unreadable_ciphertext' });
    const without = await opened({ active: 'k2', keys: { k2 } });
    await expect(without.unwrap(old, place)).rejects.toMatchObject({ reason: 'kek_missing' });
  });

  it('takes a new active key from a change, and keeps one that was taken away until the process ends', async () => {
    const kek = await opened();
    const old = await kek.wrap(data, place);
    await write({ active: 'k2', keys: { k2 } });
    await kek.refresh();
    expect(kek.activeKid).toBe('k2');
    expect(await kek.unwrap(old, place)).toEqual(data);
  });

  it.each<[string, unknown]>([
    ['no JSON', `{"active":"k1","keys":{"k1":"${k2}`],
    ['a key that is too short', { active: 'k1', keys: { k1: 'c2hvcnQ=' } }],
    ['an active key that is missing', { active: 'k2', keys: { k1 } }],
    ['another key under the old name', { active: 'k1', keys: { k1: k2 } }],
  ])('changes nothing with %s, and says so once without quoting it', async (_what, content) => {
    const kek = await opened();
    await write(content);
    await kek.refresh();
    await kek.refresh();
    expect(kek.fault).toContain(file);
    expect(await kek.unwrap(await kek.wrap(data, place), place)).toEqual(data);
    expect(lines.filter((line) => line.includes('cannot be used'))).toHaveLength(1);
    for (const told of [kek.fault, ...lines]) for (const key of [k1, k2]) expect(told).not.toContain(key.slice(0, 12));
    await write({ active: 'k1', keys: { k1 } });
    await kek.refresh();
    expect(kek.fault).toBeUndefined();
  });

  it('stops a start without it, or with a faulty one', async () => {
    await expect(KekFile.open(file, logger)).rejects.toMatchObject({ reason: 'kek_unreadable' });
    await expect(opened({ active: 'k1', keys: {} })).rejects.toMatchObject({ reason: 'kek_faulty' });
    await expect(opened({ active: 'constructor', keys: { k1 } })).rejects.toMatchObject({ reason: 'kek_faulty' });
  });
});
