import { Injectable } from '@nestjs/common';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { PublicTool } from './catalog.dto';

/** Tools, projects and models of the caller's tenant. */
@Injectable()
export class CatalogService {
  constructor(private readonly backends: Backends) {}

  async tools({ call }: Caller): Promise<Answer> {
    const { toolsJson } = await this.backends.executor.listTools({}, call);
    return new Answer(200, { tools: toolsJson.map((json) => PublicTool.parse(JSON.parse(json))) });
  }

  async projects({ call }: Caller): Promise<Answer> {
    const { projectsJson } = await this.backends.sessions.listProjects({}, call);
    return Answer.json(`{"projects":[${projectsJson.join(',')}]}`);
  }

  async models({ call }: Caller): Promise<Answer> {
    const { models, defaultModel, capabilitiesJson } = await this.backends.sessions.listModels({}, call);
    const capabilities: unknown = JSON.parse(capabilitiesJson || '{}');
    return new Answer(200, {
      models: models.length > 0 ? models : [defaultModel],
      default: defaultModel,
      capabilities,
    });
  }
}
