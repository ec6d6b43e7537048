import { Model, type ModelAnswer, type ModelRequest } from '@margay/engine';
import { faultPoint } from '@margay/platform';
import type { OwnedRun } from '../journal/grpc-journal';

type CallOptions = Parameters<Model['call']>[1];

/** A model with a fault point at each piece of its answers; what arrives can't be held up there. */
export class FaultPointModel extends Model {
  constructor(
    private readonly model: Model,
    private readonly run: OwnedRun,
  ) {
    super();
  }

  override get defaultModel(): string {
    return this.model.defaultModel;
  }

  call(request: ModelRequest, options: CallOptions): Promise<ModelAnswer> {
    const { sessionId, runId } = this.run;
    let soFar = '';
    const onText = (text: string): void => {
      soFar += text;
      options.onText(text);
      void faultPoint('runner.during-model-stream', () => `${sessionId} ${runId} ${soFar}`);
    };
    return this.model.call(request, { ...options, onText });
  }
}
