import { USUAL_SANDBOX_CLASS, type Principal, type sessionsPb } from '@margay/contracts';
import { InvalidArgumentError, UnavailableError } from '@margay/errors';
import { canonicalJson, sha256Hex, type Head, type RunOptions, type RunRequest } from '@margay/log';
import { currentTraceparent } from '@margay/platform';
import type { RunnerPools } from '../dispatch/runner-pools';
import type { ModelsService } from '../projects/models.service';
import type { Binding, ProjectsService } from '../projects/projects.service';
import type { SandboxClasses } from '../projects/sandbox-classes';
import type { SandboxIsolation } from '../projects/sandbox-isolation';

export const ENGINE_VERSION = '1';

export interface RunRequestPorts {
  projects: ProjectsService;
  models: ModelsService;
  isolation: Pick<SandboxIsolation, 'unusual'>;
  classes: Pick<SandboxClasses, 'of'>;
  pools: RunnerPools;
  stepBudget: number;
}

export type WantedRun = Omit<sessionsPb.AcceptRunRequest, 'sessionId' | 'idempotencyKey'>;

/**
 * The run that a request means, as this head has it.
 * @throws UnavailableError `models_not_ready`; what `ProjectsService.bind` and `SandboxClasses.of` throw; InvalidArgumentError for broken JSON
 */
export async function runRequest(
  ports: RunRequestPorts,
  principal: Principal,
  head: Head,
  wanted: WantedRun,
): Promise<RunRequest> {
  const { project, cwd, ...given } = parseContext(wanted.contextJson);
  const merged = { ...head.context, ...given };
  const model = textOf(merged['model']) || ports.models.defaultModel;
  if (!model)
    throw new UnavailableError('models_not_ready', 'no model is configured: set MARGAY_MODEL and the provider of it');
  // A project that was named at the creation may be unknown: then it is said now.
  const inherited = textOf(head.context['project']);
  const named = { project: wanted.project || textOf(project) || inherited, cwd: wanted.cwd || textOf(cwd) };
  const binding = await bindingFor(ports.projects, head, named);
  const choice = { tenantId: head.tenantId, wanted: textOf(merged['sandbox_class']), project: binding.project };
  const sandboxClass = await ports.classes.of(choice);
  const mode = (wanted.mode || textOf(merged['mode'])) === 'plan' ? 'plan' : 'act';
  const capabilities = wanted.hasCapabilities ? wanted.capabilities : textsOf(merged['client_capabilities']);
  const options: RunOptions = {
    model,
    fallbackModels: textsOf(merged['fallback_models']),
    mode,
    mcpTools: Array.isArray(merged['mcp_tools']) ? textsOf(merged['mcp_tools']) : null,
    capabilities,
    stepBudget: ports.stepBudget,
    engineVersion: ENGINE_VERSION,
  };
  const isRemovable = await ports.projects.enter(head.tenantId, head.sessionId, binding);
  const seen = { binding: head.binding, ...(isRemovable ? { epoch: head.epoch } : {}) };
  const traceparent = currentTraceparent();
  const isolation = ports.isolation.unusual;
  return {
    text: wanted.text,
    context: {
      ...given,
      model,
      mode,
      ...boundContext(binding),
      ...(wanted.hasCapabilities ? { client_capabilities: capabilities } : {}),
      ...(wanted.surface ? { surface: wanted.surface } : {}),
    },
    binding,
    attachments: parseAttachments(wanted.attachmentsJson),
    principal: principal.principal,
    pool: ports.pools.of(head.tenantId),
    options,
    requestHash: requestHash(wanted),
    seen,
    ...(sandboxClass === USUAL_SANDBOX_CLASS ? {} : { sandboxClass }),
    ...(isolation === undefined ? {} : { isolation }),
    ...(traceparent === undefined ? {} : { traceparent }),
  };
}

/** What a context says of a binding. */
export function boundContext({ project, cwd }: Binding): Record<string, string> {
  return { ...(project === null ? {} : { project }), ...(cwd === null ? {} : { cwd }) };
}

/**
 * Project and folder can be set only while the session has none; later values are ignored. What is set must still be
 * there, and still be allowed.
 */
function bindingFor(
  projects: ProjectsService,
  { tenantId, binding: { project, cwd } }: Head,
  named: { project: string; cwd: string },
): Promise<Binding> {
  const isBound = project !== null || cwd !== null;
  return isBound
    ? projects.bind(tenantId, project ?? '', cwd ?? '')
    : projects.bind(tenantId, named.project, named.cwd);
}

function requestHash({ text, mode, project, cwd, contextJson, attachmentsJson }: WantedRun): string {
  return sha256Hex(canonicalJson({ said: text, mode, project, cwd, contextJson, attachmentsJson }));
}

export function parseContext(json: string): Record<string, unknown> {
  const value = jsonOf(json || '{}');
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new InvalidArgumentError('invalid_context', "'context' must be a JSON object");
  return value as Record<string, unknown>;
}

function parseAttachments(json: string): unknown[] {
  const value = jsonOf(json || '[]');
  if (!Array.isArray(value)) throw new InvalidArgumentError('invalid_attachments', "'attachments' must be a list");
  return value;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // of no shape that anybody asks for
  }
}

export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function textsOf(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === 'string') : [];
}

/** Whether a session would take a run does not depend on which one. */
export const ANY_RUN: RunRequest = {
  text: '',
  context: {},
  binding: { project: null, cwd: null },
  attachments: [],
  principal: '',
  pool: '',
  options: {
    model: '',
    fallbackModels: [],
    mode: 'act',
    mcpTools: null,
    capabilities: [],
    stepBudget: 0,
    engineVersion: '',
  },
};
