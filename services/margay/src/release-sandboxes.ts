import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { InvalidArgumentError, UnavailableError } from '@margay/errors';
import type { Logger } from '@margay/platform';

const USAGE = `Usage: margay.cjs release-sandboxes --namespace NAMESPACE --install ID
Ends the sandboxes of an installation that is gone. Volumes stay.`;
const LOOK_MS = 2_000;
/** A pod that is being started by somebody who does not know yet is seen within so many looks. */
const EMPTY_LOOKS = 3;
const LIMIT_MS = 240_000;
const GRACE_SECONDS = 5;

export interface SandboxPods {
  /** Names of those that are there. */
  list(): Promise<string[]>;
  /** Asks for the end of all of them. */
  end(graceSeconds: number): Promise<void>;
}

export interface ReleaseOptions {
  pods: SandboxPods;
  logger: Logger;
  lookMs?: number;
  limitMs?: number;
}

/** @throws InvalidArgumentError `usage` */
export function parseReleaseSandboxes(argv: readonly string[]): { namespace: string; install: string } {
  const text = { type: 'string' } as const;
  try {
    const { namespace, install } = parseArgs({ args: [...argv], options: { namespace: text, install: text } }).values;
    if (namespace && install) return { namespace, install };
  } catch {
    // The usage says it better.
  }
  throw new InvalidArgumentError('usage', USAGE);
}

/** Ends pods until none has been there for a while. @throws UnavailableError `sandboxes_left` */
export async function releaseSandboxes(options: ReleaseOptions): Promise<void> {
  const { pods, logger, lookMs = LOOK_MS, limitMs = LIMIT_MS } = options;
  const until = performance.now() + limitMs;
  for (let emptyLooks = 0; ;) {
    const names = await pods.list();
    emptyLooks = names.length === 0 ? emptyLooks + 1 : 0;
    if (emptyLooks === EMPTY_LOOKS) return logger.info({}, 'no sandbox is left');
    if (performance.now() > until) {
      const message = `${names.length} sandboxes did not end within ${limitMs} ms, e.g. ${names[0]}; delete them by hand.`;
      throw new UnavailableError('sandboxes_left', message);
    }
    if (names.length > 0) {
      logger.info({ sandboxes: names.length }, 'ending sandboxes');
      await pods.end(GRACE_SECONDS);
    }
    await pause(lookMs);
  }
}

/** In a pod as its service account, elsewhere as KUBECONFIG says. */
export async function openSandboxPods(namespace: string, install: string): Promise<SandboxPods> {
  // Loaded here only: the client is large.
  const { CoreV1Api, KubeConfig } = await import('@kubernetes/client-node');
  const config = new KubeConfig();
  config.loadFromDefault();
  const api = config.makeApiClient(CoreV1Api);
  const labelSelector = `app.kubernetes.io/managed-by=margay,margay.dev/component=sandbox,margay.dev/install=${install}`;
  return {
    list: async () => {
      const { items } = await api.listNamespacedPod({ namespace, labelSelector });
      return items.map(({ metadata }) => metadata?.name ?? '');
    },
    end: async (gracePeriodSeconds) => {
      await api.deleteCollectionNamespacedPod({ namespace, labelSelector, gracePeriodSeconds });
    },
  };
}
