import type { EventInput } from '@margay/contracts';
import type { ModelAnswer, ModelFailure, ModelUsage, SandboxWait } from '../ports';
import type { RecordedCall } from '../state/records';
import type { ShapedResult } from '../tools/shape-result';
import { plainText } from './plain-text';

const RETRY_ERROR_MAX_CHARS = 200;

export interface CallFacts {
  call: RecordedCall;
  toolId: string;
  operation: string;
  input: unknown;
  model: string;
}

/** Public events of one agent. */
export class EventFactory {
  constructor(
    private readonly agentId: string,
    private readonly depth: number,
  ) {}

  callStart(step: number, model: string, boundTools: string[] | undefined): EventInput {
    const bound = boundTools ? { bound_tools: boundTools } : {};
    return { type: 'llm_call_start', payload: { ...this.at(step), model, ...bound } };
  }

  callEnd(step: number, answer: ModelAnswer, total: ModelUsage, durationMs: number): EventInput {
    const { usage } = answer;
    return {
      type: 'llm_call_end',
      payload: {
        ...this.at(step),
        success: true,
        model: answer.model,
        input_tokens: usage.inputTokens,
        output_tokens: usage.outputTokens,
        cache_creation_input_tokens: usage.cacheCreationTokens,
        cache_read_input_tokens: usage.cacheReadTokens,
        reasoning_output_tokens: usage.reasoningTokens,
        cumulative_input_tokens: total.inputTokens,
        cumulative_output_tokens: total.outputTokens,
        duration_ms: durationMs,
      },
    };
  }

  callFailed(step: number, model: string, errorType: string, reason: string): EventInput {
    const payload = { ...this.at(step), success: false, model, error_type: errorType, reason: plainText(reason) };
    return { type: 'llm_call_end', payload };
  }

  retry(
    step: number,
    model: string,
    failure: ModelFailure,
    attempt: number,
    maxAttempts: number,
    delayMs: number,
  ): EventInput {
    return {
      type: 'llm_retry',
      payload: {
        ...this.at(step),
        model,
        attempt,
        max_attempts: maxAttempts,
        error: plainText(failure.message, RETRY_ERROR_MAX_CHARS),
        error_type: failure.kind,
        delay: Math.round(delayMs) / 1000,
        retryable: true,
      },
    };
  }

  fallback(step: number, from: string, to: string, failure: ModelFailure, reason: string): EventInput {
    return {
      type: 'llm_fallback',
      payload: {
        ...this.at(step),
        from_model: from,
        to_model: to,
        reason,
        previous_error_type: failure.kind,
        sticky: true,
      },
    };
  }

  message(step: number, text: string): EventInput {
    return { type: 'agent_message', payload: { text, ...this.at(step) } };
  }

  toolCall({ call, toolId, operation, input, model }: CallFacts): EventInput {
    return {
      type: 'tool_call',
      payload: {
        tool_call_id: call.callId,
        tool_id: toolId,
        operation,
        tool_input: input,
        agent_id: this.agentId,
        depth: this.depth,
        model,
      },
    };
  }

  toolResult(
    { call, toolId, operation, input, model }: CallFacts,
    result: ShapedResult,
    durationMs: number,
  ): EventInput {
    return {
      type: 'tool_result',
      payload: {
        tool_call_id: call.callId,
        tool_id: toolId,
        operation,
        tool_input: input,
        result: result.eventResult,
        success: !result.isError,
        summary: result.summary,
        ...(result.error === undefined ? {} : { error: result.error }),
        ...(result.outcome === undefined ? {} : { outcome: result.outcome }),
        agent_id: this.agentId,
        model,
        duration_ms: durationMs,
      },
    };
  }

  denied({ toolId, operation, input }: CallFacts): EventInput {
    return { type: 'permission', payload: { tool_id: toolId, operation, tool_input: input, decision: 'deny' } };
  }

  halted(step: number, tool: string): EventInput {
    return { type: 'recovery', payload: { action: 'halt_no_progress', ...this.at(step), tool } };
  }

  sandboxState({ sandboxId, state, reason, message, attempt, queuePosition = 0 }: SandboxWait): EventInput {
    const sandbox = sandboxId === '' ? {} : { sandbox_id: sandboxId };
    const tries = attempt === 0 ? {} : { attempt };
    const place = queuePosition === 0 ? {} : { queue_position: queuePosition };
    return { type: 'sandbox_state', payload: { ...sandbox, state, reason, message, ...tries, ...place } };
  }

  note(text: string): EventInput {
    return { type: 'run_note', payload: { text } };
  }

  private at(step: number): { agent_id: string; depth: number; step: number } {
    return { agent_id: this.agentId, depth: this.depth, step };
  }
}
