import type { PrepareContext, SandboxPreparation } from './sandbox-preparation';
import type { LiveSandbox } from './sandbox-claims';
import type { SandboxWish } from './sandbox-registry';

/** One after the other. */
export class AllPreparations implements SandboxPreparation {
  private readonly parts: readonly SandboxPreparation[];

  constructor(parts: readonly (SandboxPreparation | undefined)[]) {
    this.parts = parts.filter((part) => part !== undefined);
  }

  async admit(wish: SandboxWish): Promise<void> {
    for (const part of this.parts) await part.admit(wish);
  }

  async prepare(wish: SandboxWish, sandbox: LiveSandbox, context: PrepareContext): Promise<void> {
    for (const part of this.parts) await part.prepare(wish, sandbox, context);
  }
}
