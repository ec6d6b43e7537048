import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { SecretStore, type StoredSecret } from './secret-store';
import type { SecretData } from './secrets';

/** A folder per secret, a file per key: what `kubectl create secret generic --from-file` takes. For one process at a time. */
export class FolderSecrets extends SecretStore {
  constructor(private readonly folder: string) {
    super();
  }

  async find(name: string): Promise<StoredSecret | undefined> {
    const folder = join(this.folder, name);
    try {
      const files = await readdir(folder);
      const texts = files.map(async (file) => [file, await readFile(join(folder, file), 'utf8')] as const);
      return { data: Object.fromEntries(await Promise.all(texts)), version: '' };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
  }

  async create(name: string, data: SecretData): Promise<void> {
    await mkdir(join(this.folder, name), { recursive: true, mode: 0o700 });
    await this.patch(name, data);
  }

  async patch(name: string, data: SecretData): Promise<void> {
    for (const [file, text] of Object.entries(data)) {
      const path = join(this.folder, name, file);
      // Whoever reads it finds the one or the other.
      await writeFile(`${path}.new`, text, { mode: 0o600 });
      await rename(`${path}.new`, path);
    }
  }
}
