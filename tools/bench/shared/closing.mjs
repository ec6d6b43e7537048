/** Ends what was opened, last first, also after a failure half-way. */
export class Closing {
  #closers = [];

  add(closer) {
    this.#closers.push(closer);
  }

  async close() {
    for (const closer of this.#closers.splice(0).reverse()) await closer();
  }
}
