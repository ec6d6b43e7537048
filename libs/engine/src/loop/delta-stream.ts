import type { AgentRun } from './agent-run';

/** Fragments of a step's text on their way to those who watch. They wait until the commit they follow is stored. */
export class DeltaStream {
  private offset = 0;
  private waiting: { offset: number; text: string }[] = [];
  private followsC: number | undefined;
  /** Text of the present attempt. */
  text = '';

  constructor(
    private readonly run: AgentRun,
    private readonly step: number,
    stored: Promise<number>,
  ) {
    stored.then(
      (c) => this.flush(c),
      () => (this.waiting = []), // the writer halts the run
    );
  }

  push(text: string): void {
    if (text === '') return;
    this.text += text;
    const fragment = { offset: this.offset, text };
    this.offset += text.length;
    if (this.followsC === undefined) this.waiting.push(fragment);
    else this.send(fragment, this.followsC);
  }

  /** The call is made again: its text starts anew. */
  restart(): void {
    this.text = '';
    this.offset = 0;
  }

  private flush(c: number): void {
    this.followsC = c;
    for (const fragment of this.waiting) this.send(fragment, c);
    this.waiting = [];
  }

  private send(fragment: { offset: number; text: string }, followsC: number): void {
    const { agentId, depth } = this.run;
    this.run.ports.journal.delta({ agentId, depth, step: this.step, ...fragment, followsC });
  }
}
