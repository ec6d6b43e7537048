import type { ContentOrder } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import type { UploadStore } from './upload-store';
import type { WorkspaceTemplates } from './templates';
import type { StoredContent, StoredUpload } from './workspace-document';

/** An order for a sandbox, with the file that has to be there first. */
export interface Placed {
  order: ContentOrder;
  upload?: StoredUpload;
}

/** Files that are restored rather than brought. */
export interface Archived {
  archive: { workspaceId: string; n: number };
}

/** The content cannot be brought, whatever sandbox tries it. */
export class Unfit extends Error {
  constructor(readonly words: { reason: string; message: string }) {
    super(words.message);
  }
}

const NOTES = { 'CLAUDE.md': '# About this project\n\nWhat agents are to know of it.\n' };

/** What sandboxes are told to bring: without anything that only this service knows, such as templates. */
export class ContentOrders {
  constructor(
    private readonly templates: WorkspaceTemplates,
    private readonly uploads: Pick<UploadStore, 'findBySha256'>,
  ) {}

  /** Uploads that stay, by their SHA-256. */
  get kept(): ReadonlySet<string> {
    return this.templates.blobs;
  }

  /** @throws Unfit */
  async of({ source, upload }: StoredContent): Promise<Placed | Archived> {
    switch (source.kind) {
      case 'clone':
        return { order: source };
      case 'empty':
        return { order: { kind: 'empty', files: NOTES } };
      case 'upload':
        if (upload) return unpacking(upload);
        throw new Unfit({ reason: 'upload_missing', message: 'No file has been uploaded to it yet.' });
      case 'template':
        return source.snapshot === undefined
          ? this.ofTemplate(source.name ?? '')
          : { archive: snapshotNamed(source.snapshot) };
    }
  }

  private async ofTemplate(name: string): Promise<Placed> {
    const template = this.templates.find(name);
    if (!template) throw new Unfit({ reason: 'template_unknown', message: `There is no template ${name} any more.` });
    if ('blob' in template) return unpacking(await this.stored(name, template.blob));
    const { url, ref } = template;
    const how = { submodules: false, lfs: false, ...(ref === undefined ? {} : { ref }) };
    return { order: { kind: 'clone', url, ...how } };
  }

  private stored(name: string, sha256: string): Promise<StoredUpload> {
    return this.uploads.findBySha256(sha256).catch((error: unknown) => {
      if (!isMargayError(error) || error.code !== 'NOT_FOUND') throw error;
      throw new Unfit({
        reason: 'template_missing',
        message: `The archive of the template ${name} is not in the store.`,
      });
    });
  }
}

/** What the id of a snapshot says. */
export function snapshotNamed(id: string): Archived['archive'] {
  const [workspaceId = '', n = ''] = id.split('/');
  return { workspaceId, n: Number(n) };
}

function unpacking(upload: StoredUpload): Placed {
  const { format, bytes, sha256, filename } = upload;
  return { order: { kind: 'unpack', format, bytes, sha256, filename: filename || 'upload' }, upload };
}
