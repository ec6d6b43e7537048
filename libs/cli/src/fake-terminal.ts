import { readEnvironment, type Environment } from './config';
import type { Clock } from '@margay/client';
import type { Output, Terminal } from './terminal';

/** Output that is only remembered. */
class FakeOutput implements Output {
  text = '';
  columns = 80;

  constructor(public isTerminal: boolean) {}

  write(text: string): void {
    this.text += text;
  }
}

/** A terminal for tests: injected input, remembered output, Ctrl-C by hand. */
export class FakeTerminal implements Terminal {
  readonly stdout: FakeOutput;
  readonly stderr: FakeOutput;
  readonly environment: Environment;
  readonly folder = '/srv/shop';
  input = '';
  #interrupt: (() => void) | undefined;

  constructor(
    readonly clock: Clock,
    variables: Record<string, string>,
    { isTerminal = false } = {},
  ) {
    this.stdout = new FakeOutput(isTerminal);
    this.stderr = new FakeOutput(isTerminal);
    this.environment = readEnvironment(variables);
  }

  async readInput(): Promise<string> {
    return this.input;
  }

  onInterrupt(callback: () => void): () => void {
    this.#interrupt = callback;
    return () => (this.#interrupt = undefined);
  }

  /** Whether Ctrl-C is taken by the command; otherwise it would end the process. */
  get catchesInterrupts(): boolean {
    return this.#interrupt !== undefined;
  }

  pressInterrupt(): void {
    this.#interrupt?.();
  }
}
