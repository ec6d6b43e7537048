import { commitStoreContract as contractOf, LogClock, type CommitStoreHarness, type ContractCase } from '@margay/log';

/** What the log rests on, see the contract in `@margay/log`. Use: `it.each(commitStoreContract(make))('$title', …)`. */
export function commitStoreContract(make: () => Promise<CommitStoreHarness>): ContractCase[] {
  return contractOf(make, { clock: new SystemLogClock() });
}

class SystemLogClock extends LogClock {
  nowMicros(): number {
    return Math.floor((performance.timeOrigin + performance.now()) * 1_000);
  }

  monotonicMs(): number {
    return performance.now();
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => setTimeout(resolve, ms));
  }

  random(): number {
    return Math.random();
  }
}
