import { readFileSync } from 'node:fs';
import { ContentSource } from '@margay/contracts';
import { InvalidArgumentError } from '@margay/errors';
import { parse } from 'yaml';
import { z } from 'zod';

const Name = z.string().min(1).max(128);
const Template = z.union([
  /** A repository. */
  z.strictObject({ name: Name, url: z.string(), ref: z.string().optional() }),
  /** The SHA-256 of an archive that was uploaded to some workspace; it is kept from then on. */
  z.strictObject({ name: Name, blob: z.string().regex(/^[0-9a-f]{64}$/) }),
]);
const TemplateFile = z.strictObject({ templates: z.array(Template).max(1_000) });

export type WorkspaceTemplate = z.infer<typeof Template>;

/** What the operator offers new projects to begin with, by name. */
export class WorkspaceTemplates {
  private readonly byName: ReadonlyMap<string, WorkspaceTemplate>;
  /** Uploads that templates are made of. */
  readonly blobs: ReadonlySet<string>;

  constructor(templates: readonly WorkspaceTemplate[]) {
    this.byName = new Map(templates.map((template) => [template.name, template]));
    this.blobs = new Set(templates.flatMap((template) => ('blob' in template ? [template.blob] : [])));
  }

  /** @param file YAML or JSON; undefined: there are none. @throws InvalidArgumentError `bad_environment` */
  static read(file: string | undefined): WorkspaceTemplates {
    if (file === undefined) return new WorkspaceTemplates([]);
    const parsed = TemplateFile.safeParse(parse(readFileSync(file, 'utf8')));
    if (!parsed.success) throw unusable(file, z.prettifyError(parsed.error));
    for (const template of parsed.data.templates) {
      if (!('url' in template)) continue;
      const { name, ...clone } = template;
      if (!ContentSource.safeParse({ kind: 'clone', ...clone }).success)
        throw unusable(file, `the address or ref of the template ${name} cannot be cloned`);
    }
    return new WorkspaceTemplates(parsed.data.templates);
  }

  find(name: string): WorkspaceTemplate | undefined {
    return this.byName.get(name);
  }
}

function unusable(file: string, why: string): Error {
  return new InvalidArgumentError(
    'bad_environment',
    `Cannot start: MARGAY_WORKSPACE_TEMPLATES_FILE (${file}) is unusable: ${why}.`,
  );
}
