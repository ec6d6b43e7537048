import { fork, type ChildProcess } from 'node:child_process';
import type { Rule } from './rules';
import { simulate, type SimulationResult } from './simulate';

/** Seeds for one worker to play one after the other. */
export interface Task {
  from: number;
  to: number;
  off: string[];
  isStress: boolean;
  /** Ends with the first seed that fails. */
  stopAtFirst: boolean;
}

type Answer = { result: SimulationResult } | { done: true } | { failed: string };

/** Plays tasks in processes of this same program, one for each core. */
export class WorkerPool {
  private readonly workers: ChildProcess[];

  constructor(size: number) {
    this.workers = Array.from({ length: size }, () =>
      fork(__filename, [], { execArgv: ['--enable-source-maps'], serialization: 'advanced' }),
    );
  }

  async run(tasks: Task[], onResult: (result: SimulationResult, task: Task) => void): Promise<void> {
    const waiting = [...tasks];
    await Promise.all(
      this.workers.map(async (worker) => {
        for (let task = waiting.shift(); task; task = waiting.shift()) {
          const present = task;
          await runOn(worker, present, (result) => onResult(result, present));
        }
      }),
    );
  }

  close(): void {
    for (const worker of this.workers) worker.kill();
  }
}

function runOn(worker: ChildProcess, task: Task, onResult: (result: SimulationResult) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const onExit = (): void => reject(new Error(`a worker died in seeds ${task.from}-${task.to}`));
    const settle = (then: () => void): void => {
      worker.off('message', onMessage);
      worker.off('exit', onExit);
      then();
    };
    const onMessage = (message: unknown): void => {
      const answer = message as Answer;
      if ('result' in answer) onResult(answer.result);
      else if ('failed' in answer) settle(() => reject(new Error(answer.failed)));
      else settle(resolve);
    };
    worker.on('message', onMessage);
    worker.once('exit', onExit);
    worker.send(task);
  });
}

/** Answers tasks that come from the parent process. */
export function serveAsWorker(): void {
  const answer = (message: Answer): void => void process.send?.(message);
  process.on('disconnect', () => process.exit());
  process.on('message', (task: Task) => {
    playTask(task, answer).then(
      () => answer({ done: true }),
      (error: unknown) => answer({ failed: String((error as Error).stack) }),
    );
  });
}

async function playTask(
  { from, to, off, isStress, stopAtFirst }: Task,
  answer: (message: Answer) => void,
): Promise<void> {
  for (let seed = from; seed <= to; seed++) {
    const result = await simulate({ seed, off: new Set(off as Rule[]), isStress });
    answer({ result });
    if (stopAtFirst && result.violations.length > 0) return;
  }
}
