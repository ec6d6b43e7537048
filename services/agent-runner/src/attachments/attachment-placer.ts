import type { Attachment, executorPb, runnersPb } from '@margay/contracts';
import { attachmentsIn, type OpenedRun } from '@margay/engine';
import { InternalError, isMargayError } from '@margay/errors';
import type { GrpcClient, Logger } from '@margay/platform';

export interface AttachmentPlacerOptions {
  runners: Pick<GrpcClient<typeof runnersPb.RunnersDefinition>, 'readAttachment'>;
  executor: Pick<GrpcClient<typeof executorPb.ExecutorDefinition>, 'placeAttachment'>;
  /** The newest grant of the run. */
  grant: () => string;
  logger: Logger;
}

const PIECE_BYTES = 2 * 1024 * 1024;
const READ_TIMEOUT_MS = 30_000;
/** The sandbox may have to be started first. */
const PLACE_TIMEOUT_MS = 600_000;
/** Told to the log; the run goes on without the file, and the model finds that it is not there. */
const TOLERATED = new Set(['attachments_unavailable', 'blob_not_found', 'bad_attachment']);

/** Puts what people attached to the session into its sandbox, once for each life of it. */
export class AttachmentPlacer {
  private attachments: Attachment[] = [];
  private placing: Promise<void> | undefined;

  constructor(private readonly options: AttachmentPlacerOptions) {}

  /** What the whole conversation names: a new sandbox has none of it. */
  learn({ records }: OpenedRun): void {
    this.attachments = records.flatMap(({ record }) =>
      record.kind === 'user' ? attachmentsIn((record as { attachments?: unknown[] }).attachments ?? []) : [],
    );
  }

  /** Resolves when all are there; several callers share the work. It fails as a call would, and is then done again. */
  place(): Promise<void> {
    this.placing ??= this.placeAll().catch((error: unknown) => {
      this.placing = undefined;
      throw error;
    });
    return this.placing;
  }

  /** The sandbox is another one. */
  forget(): void {
    this.placing = undefined;
  }

  private async placeAll(): Promise<void> {
    for (const attachment of this.attachments) {
      try {
        await this.placeOne(attachment);
      } catch (error) {
        if (!isMargayError(error) || !TOLERATED.has(error.reason)) throw error;
        this.options.logger.warn({ err: error, attachmentId: attachment.id }, 'an attached file could not be placed');
      }
    }
  }

  private async placeOne({ stored_name: name, size_bytes: totalBytes, content_blob: blob }: Attachment): Promise<void> {
    const { executor, runners, grant } = this.options;
    const file = { name, totalBytes, sha256: blob.id };
    const send = (offset: number, content: Buffer) =>
      executor.placeAttachment({ ...file, offset, content }, { grant: grant(), timeoutMs: PLACE_TIMEOUT_MS });
    let { done, nextOffset } = await send(0, Buffer.alloc(0));
    // Twice the pieces: what was broken is sent anew, once.
    for (let left = 2 * Math.ceil(totalBytes / PIECE_BYTES) + 1; !done; left -= 1) {
      if (left === 0) throw new InternalError('attachment_broken', `The attached file ${name} does not arrive whole.`);
      const wanted = { blobId: blob.id, offset: nextOffset, length: PIECE_BYTES };
      const { content } = await runners.readAttachment(wanted, { grant: grant(), timeoutMs: READ_TIMEOUT_MS });
      ({ done, nextOffset } = await send(nextOffset, Buffer.from(content)));
    }
  }
}
