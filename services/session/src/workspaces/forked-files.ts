import type { snapshotsPb } from '@margay/contracts';
import { isMargayError, type MargayError } from '@margay/errors';
import type { ForkPlan } from '@margay/log';
import { systemPrincipal, type GrpcClient, type Logger } from '@margay/platform';

type Snapshots = Pick<GrpcClient<typeof snapshotsPb.SnapshotsDefinition>, 'forkWorkspace'>;

/** Less than who forks waits. */
const COPY_MS = 100_000;
/** Without its files a session is worth forking, too: nobody keeps records, or there is more than may be archived. */
const isLeftOut = ({ code, reason }: MargayError): boolean =>
  code === 'UNIMPLEMENTED' || reason === 'snapshot_too_large';

/** What a session without a project has in its workspace goes into its forks. */
export class ForkedFiles {
  constructor(
    private readonly client: Snapshots,
    private readonly logger: Logger,
  ) {}

  /** Idempotent. @throws UnavailableError where no sandbox can archive them at present */
  async copy({ tenantId, owner, sessionId, source }: ForkPlan): Promise<void> {
    const request = { fromSessionId: source.sessionId, toSessionId: sessionId, owner };
    const options = { principal: systemPrincipal('session', tenantId), timeoutMs: COPY_MS };
    try {
      await this.client.forkWorkspace(request, options);
    } catch (error) {
      if (!isMargayError(error) || !isLeftOut(error)) throw error;
      this.logger.warn({ err: error, sessionId, from: source.sessionId }, 'a session is forked without its files');
    }
  }
}
