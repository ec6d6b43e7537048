import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryFolder } from '../fixtures.testing';
import { writeLocalProfile } from './profiles';

describe('writeLocalProfile', () => {
  let folder: Awaited<ReturnType<typeof temporaryFolder>>;

  beforeEach(async () => {
    folder = await temporaryFolder();
  });
  afterEach(() => folder.remove());

  const profile = { url: 'http://127.0.0.1:8787', apiKeyFile: '/home/ada/.margay/bootstrap.key' };
  const stored = async () => JSON.parse(await readFile(join(folder.path, 'profiles.json'), 'utf8'));

  it('writes profile local as the current one, for its owner only', async () => {
    expect(await writeLocalProfile(folder.path, profile)).toBe(join(folder.path, 'profiles.json'));
    expect(await stored()).toEqual({
      current: 'local',
      profiles: { local: { url: profile.url, key_file: profile.apiKeyFile } },
    });
    expect((await stat(join(folder.path, 'profiles.json'))).mode & 0o777).toBe(0o600);
  });

  it('keeps other profiles, the current one and fields it does not know, and closes a file that was open to others', async () => {
    const before = {
      current: 'team',
      profiles: { team: { url: 'http://127.0.0.1:1', mode: 'plan' }, local: { model: 'x' } },
      later: 1,
    };
    await writeFile(join(folder.path, 'profiles.json'), JSON.stringify(before), { mode: 0o644 });
    await writeLocalProfile(folder.path, profile);
    expect(await stored()).toEqual({
      ...before,
      profiles: { team: before.profiles.team, local: { model: 'x', url: profile.url, key_file: profile.apiKeyFile } },
    });
    expect((await stat(join(folder.path, 'profiles.json'))).mode & 0o777).toBe(0o600);
  });

  it('does not overwrite a file it cannot read', async () => {
    await writeFile(join(folder.path, 'profiles.json'), '{ half');
    await expect(writeLocalProfile(folder.path, profile)).rejects.toMatchObject({ reason: 'profiles_unreadable' });
    expect(await readFile(join(folder.path, 'profiles.json'), 'utf8')).toBe('{ half');
  });
});
