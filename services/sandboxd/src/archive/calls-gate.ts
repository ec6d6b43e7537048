/** Holds calls back while files must not change under an archive. */
export class CallsGate {
  private closed: { opened: Promise<void>; held: () => void } | undefined;

  /** For a call that may change files; at once while nothing is in its way. */
  async pass(): Promise<void> {
    while (this.closed) {
      this.closed.held();
      await this.closed.opened;
    }
  }

  /** @param work is told when a call has been held for so long */
  async whileClosed<T>(patienceMs: number, work: (impatient: AbortSignal) => Promise<T>): Promise<T> {
    const impatience = new AbortController();
    let timer: NodeJS.Timeout | undefined;
    let open: () => void = () => undefined;
    const opened = new Promise<void>((resolve) => (open = resolve));
    const held = (): void => void (timer ??= setTimeout(() => impatience.abort(), patienceMs));
    this.closed = { opened, held };
    try {
      return await work(impatience.signal);
    } finally {
      clearTimeout(timer);
      this.closed = undefined;
      open();
    }
  }
}
