import { ContentSource, type sessionsPb, type workspacesPb } from '@margay/contracts';
import { InvalidArgumentError, isMargayError, UnimplementedError } from '@margay/errors';
import { systemPrincipal, type GrpcClient } from '@margay/platform';

type Workspaces = Pick<GrpcClient<typeof workspacesPb.WorkspacesDefinition>, 'declare' | 'retire'>;

export interface NewWorkspace {
  tenantId: string;
  projectId: string;
  owner: string;
  content: ContentSource;
}

/** The workspaces of managed projects: tool-executor keeps them, and session says which there are to be. */
export class ProjectWorkspaces {
  constructor(private readonly client: Workspaces) {}

  /**
   * Before there is a project: one without a workspace would never get its content.
   * @returns its id; undefined where tool-executor keeps no records, and the project begins empty
   * @throws InvalidArgumentError `unknown_template`; UnimplementedError `content_unavailable`
   */
  async declare({ tenantId, projectId, owner, content }: NewWorkspace): Promise<string | undefined> {
    const request = { projectId, owner, sourceJson: JSON.stringify(content) };
    try {
      return (await this.client.declare(request, { principal: systemPrincipal('session', tenantId) })).workspaceId;
    } catch (error) {
      if (!isMargayError(error) || error.code !== 'UNIMPLEMENTED') throw error;
      if (content.kind === 'empty') return undefined;
      throw new UnimplementedError(
        'content_unavailable',
        `'content': '${content.kind}' needs a tool-executor that keeps records of workspaces.`,
        { cause: error },
      );
    }
  }

  /** The project is gone; its files go a while later. Idempotent. */
  async retire(tenantId: string, projectId: string): Promise<void> {
    try {
      await this.client.retire({ projectId }, { principal: systemPrincipal('session', tenantId) });
    } catch (error) {
      // Where nobody keeps records, nobody deletes by them.
      if (!isMargayError(error) || error.code !== 'UNIMPLEMENTED') throw error;
    }
  }
}

/** What the request says that the project begins with. @throws InvalidArgumentError `bad_request` */
export function contentIn({ contentKind, contentJson }: sessionsPb.CreateProjectRequest): ContentSource {
  const text = contentJson === '' ? JSON.stringify({ kind: contentKind || 'empty' }) : contentJson;
  const parsed = ContentSource.safeParse(JSON.parse(text));
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  if (issue?.message.includes("'content") === true) throw new InvalidArgumentError('bad_request', issue.message);
  const field = ['content', ...(issue?.path.map(String) ?? [])].join('.');
  const cause = issue?.code === 'invalid_union' ? 'must be clone, upload, template or empty' : (issue?.message ?? '');
  throw new InvalidArgumentError('bad_request', `Invalid input: '${field}': ${cause.replace(/^Invalid input: /, '')}`);
}
