import { Controller } from '@nestjs/common';
import type { Caller } from '../auth/admission';
import type { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromCaller } from '../http/parameters';
import { CatalogQuery, ModelList, ProjectList, ToolList } from './catalog.dto';
import { CatalogService } from './catalog.service';

const OF_REFERENCE = { method: 'GET', family: 'reference', errors: 'message' } as const;

@Controller()
export class CatalogController {
  constructor(private readonly catalog: CatalogService) {}

  @Operation({
    ...OF_REFERENCE,
    path: '/api/tools',
    summary: 'Tools that runs can use',
    scope: 'catalog.read',
    service: 'tool-executor',
    query: CatalogQuery,
    responses: { 200: { description: 'the tools', schema: ToolList } },
    sample: { status: 200 },
  })
  tools(@FromCaller() caller: Caller): Promise<Answer> {
    return this.catalog.tools(caller);
  }

  @Operation({
    ...OF_REFERENCE,
    path: '/api/projects',
    summary: 'Projects that sessions can work in',
    scope: 'projects.read',
    service: 'session',
    responses: { 200: { description: 'the projects', schema: ProjectList } },
    sample: { status: 200 },
  })
  projects(@FromCaller() caller: Caller): Promise<Answer> {
    return this.catalog.projects(caller);
  }

  @Operation({
    ...OF_REFERENCE,
    path: '/api/models',
    summary: 'Models that runs can use',
    scope: 'catalog.read',
    service: 'session',
    responses: { 200: { description: 'the models and the default one', schema: ModelList } },
    sample: { status: 200 },
  })
  models(@FromCaller() caller: Caller): Promise<Answer> {
    return this.catalog.models(caller);
  }
}
