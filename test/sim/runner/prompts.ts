import type { ModelMessage, ModelRequest } from '@margay/engine';
import { assertPaired } from '@margay/testing';
import type { World } from '../world/world';

/** The conversations that models were asked to go on with. One whose answer is stored is what all later ones begin with. */
export class Prompts {
  private readonly texts = new WeakMap<ModelMessage, string>();
  private readonly asked = new Map<string, string[]>();
  private readonly stored = new Map<string, { epoch: number; conversation: string[] }>();

  constructor(private readonly world: World) {}

  /** A runner asks its model for the answer of this step. */
  ask(runId: string, epoch: number, step: number, request: ModelRequest): void {
    // The last message is made anew for each call.
    const conversation = request.messages.slice(0, -1).map((message) => this.textOf(message));
    try {
      assertPaired(request);
    } catch (error) {
      this.world.fail('unpaired', `${runId} at epoch ${epoch}, step ${step}: ${(error as Error).message}`);
    }
    const stored = this.stored.get(runId);
    if (stored && stored.epoch <= epoch) {
      const wrong = stored.conversation.findIndex((text, index) => conversation[index] !== text);
      if (wrong >= 0)
        this.world.fail(
          'prompt',
          `${runId} at epoch ${epoch}, step ${step}: message ${wrong} was ${stored.conversation[wrong]}, is ${conversation[wrong]}`,
        );
    }
    this.asked.set(`${runId} ${epoch} ${step}`, conversation);
  }

  /** The answer of this step is in the log. */
  answered(runId: string, epoch: number, step: number): void {
    const conversation = this.asked.get(`${runId} ${epoch} ${step}`);
    const before = this.stored.get(runId);
    if (conversation && (!before || before.epoch <= epoch)) this.stored.set(runId, { epoch, conversation });
  }

  private textOf(message: ModelMessage): string {
    const known = this.texts.get(message) ?? JSON.stringify(message);
    this.texts.set(message, known);
    return known;
  }
}
