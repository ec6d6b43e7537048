import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { emptyMachine, fakeProgram, temporaryFolder } from '../fixtures.testing';
import { ensureStore, START_SOURCES, TEST_SOURCES } from './store';
import type { StoreSource } from './store-binary';
import { SECANTUS_CRATE, SECANTUS_WHEEL } from './versions';

describe('ensureStore', () => {
  let folder: Awaited<ReturnType<typeof temporaryFolder>>;

  beforeEach(async () => {
    folder = await temporaryFolder();
  });
  afterEach(() => folder.remove());

  const mongodOnPath = (version: string) => fakeProgram(join(folder.path, 'bin/mongod'), `db version v${version}`);
  const cachedMongod = () => fakeProgram(join(folder.path, 'cache/mongod-8.2.6/mongod'), 'db version v8.2.6');
  const cachedCrate = () =>
    fakeProgram(
      join(folder.path, `cache/secantusd-rs-${SECANTUS_CRATE}/bin/secantusd-rs`),
      `secantusd-rs ${SECANTUS_CRATE}`,
    );
  const cachedWheel = () =>
    fakeProgram(join(folder.path, `cache/secantusd-py-${SECANTUS_WHEEL}/bin/secantusd-py`), 'x');
  // The two that would reach for the network stay out.
  const local = (sources: readonly StoreSource[]) => sources.filter((source) => source !== 'mongod-download');
  const ensure = (allow: readonly StoreSource[], directory?: string) =>
    ensureStore({
      config: emptyMachine(folder.path),
      allow: local(allow),
      ...(directory !== undefined && { directory }),
    });
  const dataWrittenBy = async (engine: string, version: string) => {
    const directory = join(folder.path, 'data');
    await mkdir(directory);
    await writeFile(join(directory, 'engine.json'), JSON.stringify({ engine, version }));
    return directory;
  };

  it('takes the store of the environment before any other', async () => {
    await mongodOnPath('8.0.1');
    const config = { ...emptyMachine(folder.path), mongodbUrl: 'mongodb://127.0.0.1:27017' };
    expect(await ensureStore({ config })).toEqual({ kind: 'url', url: 'mongodb://127.0.0.1:27017' });
  });

  it('takes mongod on the PATH from version 7 on', async () => {
    const program = await mongodOnPath('7.0.14');
    await cachedCrate();
    expect(await ensure(START_SOURCES)).toMatchObject({
      engine: 'mongod',
      version: '7.0.14',
      command: [program],
      source: 'path',
    });
    await mongodOnPath('4.4.29');
    expect(await ensure(START_SOURCES)).toMatchObject({ engine: 'secantusd-rs', source: 'secantus-cache' });
  });

  it('takes a cached mongod before SecantusDB', async () => {
    const program = await cachedMongod();
    await cachedCrate();
    expect(await ensure(TEST_SOURCES)).toMatchObject({ engine: 'mongod', command: [program], source: 'mongod-cache' });
  });

  it('takes the Python build for npm start only where no built one is cached', async () => {
    await cachedWheel();
    expect(await ensure(START_SOURCES)).toMatchObject({ engine: 'secantusd-py', version: SECANTUS_WHEEL });
    await cachedCrate();
    expect(await ensure(START_SOURCES)).toMatchObject({ engine: 'secantusd-rs', version: SECANTUS_CRATE });
  });

  it('does not build for npm start, and builds for tests before it takes anything slower', () => {
    expect(START_SOURCES).not.toContain('secantus-cargo');
    expect(TEST_SOURCES.indexOf('secantus-cargo')).toBeLessThan(TEST_SOURCES.indexOf('secantus-pypi'));
  });

  it('passes over the build where a tool for it is missing', async () => {
    await cachedWheel();
    await fakeProgram(join(folder.path, 'bin/cargo'), 'cargo 1.95.0');
    expect(await ensure(TEST_SOURCES)).toMatchObject({ engine: 'secantusd-py' });
  });

  it('finds the engine that wrote a data folder, though another one would come first', async () => {
    await mongodOnPath('8.0.1');
    await cachedCrate();
    const directory = await dataWrittenBy('secantusd-rs', SECANTUS_CRATE);
    expect(await ensure(START_SOURCES, directory)).toMatchObject({ engine: 'secantusd-rs' });
  });

  it('refuses data of an engine that is not to be had', async () => {
    await cachedCrate();
    const directory = await dataWrittenBy('mongod', '8.2.6');
    await expect(ensure(START_SOURCES, directory)).rejects.toMatchObject({
      reason: 'store_engine_mismatch',
      message: expect.stringContaining('was written by mongod 8.2.6'),
    });
  });

  it('refuses data of another major version and names what is there', async () => {
    await mongodOnPath('8.0.1');
    const directory = await dataWrittenBy('mongod', '7.0.2');
    await expect(ensure(START_SOURCES, directory)).rejects.toThrow(/mongod 7\.0\.2, but here is mongod 8\.0\.1/);
  });
});
