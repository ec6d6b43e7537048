// Loaded before a process of Margay by `node --require`: its wall clock is off, its monotonic clock is not. A fault point
// that the product itself knows nothing of.
const offMs = Number(process.env.MARGAY_FAULT_CLOCK_SKEW_MS ?? 0);
const RealDate = Date;

globalThis.Date = class Date extends RealDate {
  constructor(...given) {
    super(...(given.length === 0 ? [RealDate.now() + offMs] : given));
  }

  static now() {
    return RealDate.now() + offMs;
  }
};
// What is left of `Date()` as a function is not used by anybody here.
const origin = performance.timeOrigin + offMs;
Object.defineProperty(performance, 'timeOrigin', { get: () => origin });
