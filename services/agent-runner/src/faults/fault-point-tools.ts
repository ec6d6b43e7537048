import type { ToolDescriptor } from '@margay/contracts';
import { Tools, type Said, type ToolInvocation, type ToolOutcome, type WrongIncarnation } from '@margay/engine';
import { faultPoint } from '@margay/platform';
import type { OwnedRun } from '../journal/grpc-journal';

type ExecuteOptions = Parameters<Tools['execute']>[1];

/** Tools with a fault point at the word that a call runs; what arrives can't be held up there. */
export class FaultPointTools extends Tools {
  constructor(
    private readonly tools: Tools,
    private readonly run: OwnedRun,
  ) {
    super();
  }

  list(): Promise<ToolDescriptor[]> {
    return this.tools.list();
  }

  override expandReferences(said: Said, signal: AbortSignal): Promise<string> {
    return this.tools.expandReferences(said, signal);
  }

  execute(invocation: ToolInvocation, options: ExecuteOptions): Promise<ToolOutcome | WrongIncarnation> {
    const { sessionId, runId } = this.run;
    const onStarted = (): void => {
      options.onStarted?.();
      void faultPoint('runner.during-call', () => `${sessionId} ${runId} ${JSON.stringify(invocation)}`);
    };
    return this.tools.execute(invocation, { ...options, onStarted });
  }
}
