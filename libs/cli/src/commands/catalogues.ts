import type { CommandContext } from '../command-context';
import { EXIT } from '../failures';
import { cut, oneLine } from '../render/sanitize';
import { table } from '../render/table';

const DESCRIPTION_WIDTH = 100;

export async function listTools(context: CommandContext, options: { project?: string }): Promise<number> {
  const { client, profile } = await context.connect();
  const project = options.project ?? profile.project;
  const tools = await client.tools(project ? { project } : {});
  const cells = tools.map((tool) => [
    oneLine(tool.tool_id),
    oneLine(tool.server ?? tool.scope),
    tool.enabled
      ? cut(oneLine(tool.description), DESCRIPTION_WIDTH)
      : `off: ${oneLine(tool.disabled_reason ?? 'disabled')}`,
  ]);
  context.print({
    json: { tools },
    lines: table(['TOOL', 'FROM', 'WHAT IT DOES'], cells, context.style),
    quiet: tools.map((tool) => tool.tool_id),
  });
  return EXIT.completed;
}

export async function listModels(context: CommandContext): Promise<number> {
  const { client } = await context.connect();
  const models = await client.models();
  const lines = models.models.map((name) => `${oneLine(name)}${name === models.default ? '  (default)' : ''}`);
  context.print({ json: models, lines, quiet: models.models });
  return EXIT.completed;
}

export async function listProjects(context: CommandContext): Promise<number> {
  const { client } = await context.connect();
  const projects = await client.projects();
  const cells = projects.map((project) => [
    oneLine(project.name),
    project.available ? oneLine(project.path) : `${oneLine(project.path)} (missing)`,
    cut(oneLine(project.description), DESCRIPTION_WIDTH),
  ]);
  context.print({
    json: { projects },
    lines: projects.length ? table(['PROJECT', 'FOLDER', 'DESCRIPTION'], cells, context.style) : ['no projects'],
    quiet: projects.map((project) => project.name),
  });
  return EXIT.completed;
}
