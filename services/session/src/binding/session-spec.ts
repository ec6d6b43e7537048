import type { SessionSpec } from '@margay/contracts';
import type { Head } from '@margay/log';
import { originOf } from '../sessions/session.mapper';

/** What of a session can be changed, and by whom it is never. */
export interface SpecAnswer {
  session_id: string;
  spec: SessionSpec;
  editable: Record<string, boolean>;
  source: 'spec';
}

export interface SpecFacts {
  defaultModel: string;
  /** 0 = unlimited. */
  stepBudget: number;
  /** How people call the project. */
  slug: string | null;
  /** Of sandboxes of its next run. */
  sandboxClass: string;
}

/** What the session is now: its next run starts so. */
export function specOf(head: Head, { defaultModel, stepBudget, slug, sandboxClass }: SpecFacts): SpecAnswer {
  const { context, binding, terminated } = head;
  const isOpen = terminated === null;
  return {
    session_id: head.sessionId,
    spec: {
      origin: originOf(head.tag, context),
      surface: textOf(context['surface']),
      purpose_bound: false,
      project: binding.project,
      slug,
      cwd: binding.cwd,
      model: textOf(context['model']) ?? defaultModel,
      fallback_models: textsOf(context['fallback_models']) ?? [],
      allowed_tools: textsOf(context['mcp_tools']),
      strict_tool_scope: false,
      capabilities: textsOf(context['client_capabilities']) ?? [],
      skill_instructions_present: textOf(context['skill']) !== null,
      session_step_budget: stepBudget === 0 ? null : stepBudget,
      mode: context['mode'] === 'plan' ? 'plan' : 'act',
      sandbox_class: sandboxClass,
    },
    editable: {
      model: isOpen,
      project: isOpen,
      mode: isOpen,
      fallback_models: isOpen,
      capabilities: isOpen,
      sandbox_class: isOpen,
      cwd: false,
    },
    source: 'spec',
  };
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null;
}

function textsOf(value: unknown): string[] | null {
  return Array.isArray(value) ? value.filter((item) => typeof item === 'string') : null;
}
