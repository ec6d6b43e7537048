import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { USUAL_SANDBOX_CLASS } from '@margay/contracts';
import { UnavailableError } from '@margay/errors';
import type { NetworkQuestions, NetworkReport } from '@margay/platform';
import { z } from 'zod';
import type { KubernetesApi, Pod } from './kubernetes-api';
import { SANDBOX_PORT } from './labels';
import { listenerPod, lookingPod, SHUT_PORT, type ProbePod } from './network-pods';
import type { PoolSettings } from './pool-settings';

export interface NetworkVerdict {
  holds: boolean;
  /** What was found, in words. */
  detail: string;
}

export interface NetworkLookParts {
  api: Pick<KubernetesApi, 'createPod' | 'findPod' | 'deletePod'>;
  settings: PoolSettings;
  /** What no sandbox may reach. */
  questions: NetworkQuestions;
  isOpen?: (host: string, port: number) => Promise<boolean>;
  /** Breaks it off; its pods go all the same. */
  signal?: AbortSignal;
}

const START_MS = 120_000;
const REACH_MS = 30_000;
const LOOK_MS = 500;
const CONNECT_MS = 2_000;
const DOOR_TRIES = 5;
const NEIGHBOUR = 'another sandbox';

const Report: z.ZodType<NetworkReport> = z.object({ reached: z.array(z.string()), answered: z.array(z.string()) });

/**
 * Finds out with two pods whether network policies are enforced in a namespace, both ways (cluster §1.10): one looks out like
 * code in a sandbox, the other listens where only tool-executor may come, and where nobody may.
 * @throws UnavailableError `network_probe` if nothing can be concluded: the pods did not start, or even what must be open is not
 */
export class NetworkLook {
  private readonly isOpen: (host: string, port: number) => Promise<boolean>;

  constructor(private readonly parts: NetworkLookParts) {
    this.isOpen = parts.isOpen ?? isOpen;
  }

  async look(namespace: string): Promise<NetworkVerdict> {
    const { api, settings, questions } = this.parts;
    const made: Pod[] = [];
    const make = async (pod: Pod): Promise<Pod> => {
      made.push(await api.createPod(pod));
      return pod;
    };
    try {
      const listener = await make(listenerPod(this.probePod(namespace), settings.pod));
      const ip = await this.until(listener, ({ status }) => status?.containerStatuses?.[0]?.state?.running && status.podIP); // prettier-ignore
      await this.mustReach(ip);
      const closed = { ...questions.closed, [NEIGHBOUR]: `${ip}:${SANDBOX_PORT}` };
      const looking = await make(lookingPod(this.probePod(namespace), settings.pod, { ...questions, closed }));
      const words = await this.until(looking, lastWordsOf);
      const isShut = await this.isShut(ip);
      // Had it ended meanwhile, its ports would have looked closed.
      await this.mustReach(ip);
      return verdictOf(Report.parse(JSON.parse(words)), isShut);
    } finally {
      await Promise.all(made.map(({ metadata }) => this.remove(namespace, metadata?.name ?? '', metadata?.uid ?? '')));
    }
  }

  private probePod(namespace: string): ProbePod {
    const name = `mg-net-${randomBytes(5).toString('hex')}`;
    return { namespace, name, class: this.parts.settings.class(USUAL_SANDBOX_CLASS) };
  }

  private async until<T>({ metadata }: Pod, find: (pod: Pod) => T | undefined | '' | false): Promise<T> {
    const { namespace = '', name = '' } = metadata ?? {};
    for (const until = performance.now() + START_MS; performance.now() < until; await this.pause()) {
      const pod = await this.parts.api.findPod({ namespace, name });
      const found = pod && find(pod);
      if (found) return found;
    }
    throw inconclusive(`the pod ${name} did not come so far in time`);
  }

  /** Else everything would look closed. */
  private async mustReach(ip: string): Promise<void> {
    for (const until = performance.now() + REACH_MS; performance.now() < until; await this.pause())
      if (await this.isOpen(ip, SANDBOX_PORT)) return;
    throw inconclusive(`tool-executor does not reach the port of sandboxes at ${ip}`);
  }

  private async isShut(ip: string): Promise<boolean> {
    for (let left = DOOR_TRIES; left > 0; left -= 1) {
      if (!(await this.isOpen(ip, SHUT_PORT))) return true;
      if (left > 1) await this.pause();
    }
    return false;
  }

  private pause(): Promise<void> {
    const { signal } = this.parts;
    return delay(LOOK_MS, undefined, signal && { signal });
  }

  private remove(namespace: string, name: string, uid: string): Promise<void> {
    return this.parts.api.deletePod({ namespace, name, uid }, 0);
  }
}

function lastWordsOf({ metadata, status }: Pod): string | undefined {
  const { terminated } = status?.containerStatuses?.[0]?.state ?? {};
  if (terminated?.message) return terminated.message;
  if (terminated) throw inconclusive(`the pod ${metadata?.name} ended with ${terminated.exitCode} and said nothing`);
  return undefined;
}

function verdictOf({ reached, answered }: NetworkReport, isShut: boolean): NetworkVerdict {
  const open = [
    ...reached.map((name) => `sandboxes reach ${name}`),
    ...answered.map((server) => `the name server ${server} answers sandboxes`),
    ...(isShut ? [] : ['ports of sandboxes are open that no policy opens']),
  ];
  if (open.length > 0) return { holds: false, detail: open.join('; ') };
  return { holds: true, detail: 'what policies close is closed, both ways' };
}

function inconclusive(what: string): Error {
  return new UnavailableError('network_probe', `Nothing can be said of the network of sandboxes: ${what}.`);
}

function isOpen(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const end = (is: boolean): void => {
      socket.destroy();
      resolve(is);
    };
    socket.setTimeout(CONNECT_MS, () => end(false));
    socket.once('connect', () => end(true)).once('error', () => end(false));
  });
}
