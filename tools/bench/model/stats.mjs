// What the bench model saw: counts, and with tracing the times of every request.

/** Since the epoch, so that the times of other processes can be laid beside them. */
const nowMicroseconds = () => (performance.timeOrigin + performance.now()) * 1000;

export class Stats {
  #requests = 0;
  #asides = 0;
  #arrivals = [];
  #finishes = [];

  reset() {
    this.#requests = 0;
    this.#asides = 0;
    this.#arrivals = [];
    this.#finishes = [];
  }

  /** The time to hand to `arrived` later, since a body must be read first. */
  now() {
    return nowMicroseconds();
  }

  count(isAside) {
    this.#requests += 1;
    if (isAside) this.#asides += 1;
  }

  /** Notes a request's times once its response is out. */
  trace(arrival, response) {
    const arrivals = this.#arrivals;
    const finishes = this.#finishes;
    const index = arrivals.push(arrival) - 1;
    response.once('finish', () => {
      finishes[index] = nowMicroseconds();
    });
  }

  /**
   * `gaps_us` are the times from one response's end to the next request's arrival: the client's own time per step.
   * They mean something only while one client asks at a time.
   */
  report() {
    const gaps = this.#arrivals
      .slice(1)
      .map((arrival, index) => Math.round((arrival - this.#finishes[index]) * 10) / 10);
    const { user, system } = process.cpuUsage();
    return {
      requests: this.#requests,
      asides: this.#asides,
      gaps_us: gaps,
      times_us: this.#arrivals.map((arrival, index) => [arrival, this.#finishes[index]]),
      span_us: this.#finishes.length === 0 ? 0 : this.#finishes.at(-1) - this.#arrivals[0],
      cpu_us: user + system,
    };
  }
}
