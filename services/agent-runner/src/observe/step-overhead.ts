/** How long one agent takes between an answer that calls tools and its next model call, less the time its tools ran. */
export class StepOverhead {
  /** When the answer came; undefined while no step is under way. */
  private answeredMs: number | undefined;
  private toolsRun = 0;
  private toolsSinceMs = 0;
  private toolsMs = 0;

  constructor(
    private readonly observe: (seconds: number) => void,
    private readonly nowMs: () => number = () => performance.now(),
  ) {}

  modelCalled(): void {
    if (this.answeredMs === undefined) return;
    this.observe((this.nowMs() - this.answeredMs - this.toolsMs) / 1_000);
    this.answeredMs = undefined;
  }

  /** Steps are measured that lead from an answer to the next call; an end or a failure leads to none. */
  modelAnswered(hasToolCalls: boolean): void {
    this.answeredMs = hasToolCalls ? this.nowMs() : undefined;
    this.toolsMs = 0;
  }

  toolStarted(): void {
    if (this.toolsRun === 0) this.toolsSinceMs = this.nowMs();
    this.toolsRun += 1;
  }

  toolEnded(): void {
    this.toolsRun -= 1;
    if (this.toolsRun === 0) this.toolsMs += this.nowMs() - this.toolsSinceMs;
  }
}
