import { writeFile } from 'node:fs/promises';
import type { Logger } from '@margay/platform';
import { EXIT } from './messages';

const LOOK_MS = 500;
/** Buffers, code and stacks are not part of the heap. */
const BESIDE_HEAP_MB = 512;
const BYTES_PER_MB = 1024 * 1024;
/** Of -1000 to 1000: this process goes first. */
const KILL_FIRST = '1000';

/** Ends this process when it takes much more than its heap, which V8 limits by itself. */
export function endAboveMemory(heapMb: number, logger: Logger): void {
  const maxBytes = (heapMb + BESIDE_HEAP_MB) * BYTES_PER_MB;
  setInterval(() => {
    const bytes = process.memoryUsage.rss();
    if (bytes <= maxBytes) return;
    logger.error({ bytes, maxBytes }, 'the process of a run takes too much memory and ends');
    process.exit(EXIT.memory);
  }, LOOK_MS).unref();
}

/** Where the machine or the container runs out of memory, Linux takes this process and not the runner beside it. */
export async function offerToBeKilledFirst(logger: Logger): Promise<void> {
  await writeFile('/proc/self/oom_score_adj', KILL_FIRST).catch((error: unknown) =>
    logger.debug({ err: error }, 'this system takes no word on whom to kill first'),
  );
}
