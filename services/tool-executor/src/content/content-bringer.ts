import { setTimeout as delay } from 'node:timers/promises';
import type { contentPb } from '@margay/contracts';
import { FailedPreconditionError, isMargayError, UnavailableError } from '@margay/errors';
import { faultPoint, type Logger } from '@margay/platform';
import { workspaceDeleting } from '../driver/workspace-deleting';
import type { LiveSandbox } from '../sandbox/sandbox-claims';
import type { SandboxPreparation, PrepareContext } from '../sandbox/sandbox-preparation';
import type { SandboxWish } from '../sandbox/sandbox-registry';
import type { Snapshots } from '../snapshots/snapshots';
import { Unfit, type Archived, type ContentOrders, type Placed } from './content-orders';
import { isUsable, type StoredContent, type WorkspaceDocument } from './workspace-document';
import { targetOf } from './workspace-target';
import type { UploadStore } from './upload-store';
import type { WorkspaceRecords } from './workspace-records';

export interface ContentBringerPorts {
  records: WorkspaceRecords;
  uploads: Pick<UploadStore, 'read' | 'removeOf'>;
  orders: ContentOrders;
  snapshots: Pick<Snapshots, 'restore'>;
  /** Rows are made by whoever claims; else by this. */
  hasRowsMade: boolean;
  /** Random per process start. */
  instance: string;
  maxBytes: number;
  logger: Logger;
}

const LEASE_MS = 15_000;
const RENEW_MS = 5_000;
const LOOK_AGAIN_MS = 500;
/** From the first byte to the last (cluster §2.3). */
const BRING_MS = 600_000;
const ANSWER_MARGIN_MS = 30_000;
const PIECE_BYTES = 4 * 1024 * 1024;
const LOSSES_MAX = 3;
const ARCHIVE_IS_GONE = new Set(['snapshot_incomplete', 'archive_missing']);

/**
 * Brings what a workspace begins with into its first sandbox, before any call goes there. One sandbox does it; those of other
 * sessions wait. Whoever brings it holds a lease; after a crash another begins anew, counted, and what the sandbox has done
 * already is found by the mark it left.
 */
export class ContentBringer implements SandboxPreparation {
  private readonly closing = new AbortController();

  constructor(private readonly ports: ContentBringerPorts) {}

  /** @throws UnavailableError `workspace_deleting` */
  async admit(wish: SandboxWish): Promise<void> {
    const target = targetOf(wish);
    if (!target) return;
    const { records, hasRowsMade } = this.ports;
    const row = await records.find(wish.tenantId, target.id);
    if (row?.state === 'deleting') throw workspaceDeleting();
    if (row && isUsable(row)) return hasRowsMade ? undefined : records.touch(row);
    if (row || !hasRowsMade) await records.obtain(wish.tenantId, target.key, madeFor(wish, row));
  }

  /** @throws FailedPreconditionError `content_failed` */
  async prepare(wish: SandboxWish, sandbox: LiveSandbox, context: PrepareContext): Promise<void> {
    const target = targetOf(wish);
    if (!target) return;
    for (;;) {
      context.signal.throwIfAborted();
      const row = await this.ports.records.find(wish.tenantId, target.id);
      // It was told to go while there came a sandbox.
      if (row && !isUsable(row)) throw workspaceDeleting();
      if (row && row.owner === undefined && wish.owner !== undefined && row.key.startsWith('s/'))
        await this.ports.records.changeLatest(row, () => ({ set: { owner: wish.owner ?? '' } }));
      const content = row?.content;
      if (!row || !content || content.status === 'ready') return;
      if (content.status === 'failed' || isAwaited(content)) throw failed(content);
      const taken = await this.take(row, content);
      if (taken) await this.bring(taken, sandbox, context);
      else {
        context.report(waiting(sandbox, 'the files are being brought by another sandbox'));
        await delay(LOOK_AGAIN_MS, undefined, { signal: context.signal });
      }
    }
  }

  /** What is under way breaks off; another replica begins it anew. */
  close(): void {
    this.closing.abort();
  }

  /** @returns undefined while somebody else brings it */
  private async take(row: WorkspaceDocument, content: StoredContent): Promise<Taken | undefined> {
    const isHeld = content.status === 'running' && (content.until?.getTime() ?? 0) > Date.now();
    if (isHeld || this.closing.signal.aborted) return undefined;
    const { instance, records } = this.ports;
    const attempt = (row.contentAttempt ?? 0) + 1;
    const held = { ...content, status: 'running' as const, owner: instance, until: new Date(Date.now() + LEASE_MS) };
    const changed = await records.change(row, { content: held, contentAttempt: attempt });
    return changed && { row: changed, content: held, attempt };
  }

  private async bring(taken: Taken, sandbox: LiveSandbox, context: PrepareContext): Promise<void> {
    const lost = new AbortController();
    const renewal = setInterval(() => void this.renew(taken, lost), RENEW_MS);
    const signal = AbortSignal.any([lost.signal, context.signal, this.closing.signal]);
    try {
      const placed = await this.ports.orders.of(taken.content);
      const end =
        'archive' in placed
          ? await this.restore(placed, taken, sandbox, context)
          : await this.order(placed, taken, sandbox, { ...context, signal });
      await faultPoint('workspace.after-content', () => `${taken.row.key} ${taken.row._id}`);
      await this.settle(taken, end);
    } catch (error) {
      if (lost.signal.aborted) return;
      await this.notBrought(taken, error, signal.aborted);
    } finally {
      clearInterval(renewal);
    }
  }

  private async order(placed: Placed, taken: Taken, sandbox: LiveSandbox, context: PrepareContext) {
    if (placed.upload) await this.place(placed, taken, sandbox, context);
    return this.ask(placed, taken, sandbox, context);
  }

  /** @throws Unfit */
  private async restore(
    { archive: { workspaceId, n } }: Archived,
    { row: { tenantId } }: Taken,
    sandbox: LiveSandbox,
    { token, report }: PrepareContext,
  ): Promise<contentPb.BringEnd> {
    report(waiting(sandbox, 'the files of a snapshot are being restored'));
    const place = { client: sandbox.connection.client, token };
    const how = { n, force: true, maxBytes: this.ports.maxBytes };
    try {
      await this.ports.snapshots.restore({ tenantId, workspaceId }, place, how);
    } catch (error) {
      if (!isMargayError(error) || !ARCHIVE_IS_GONE.has(error.reason)) throw error;
      throw new Unfit({
        reason: 'template_missing',
        message: `The snapshot ${workspaceId}/${n} is not there any more.`,
      });
    }
    return { status: 'ready', reason: '', message: '', head: '' };
  }

  private async place(
    { upload }: Placed,
    { content, row }: Taken,
    { connection }: LiveSandbox,
    { token, report, signal }: PrepareContext,
  ): Promise<void> {
    if (!upload) return;
    report({ state: 'starting', reason: 'content', message: 'sending the uploaded file to the sandbox' });
    const of = { contentId: content.id, totalBytes: upload.bytes };
    const send = async (offset: number, piece: Buffer): Promise<number> => {
      signal.throwIfAborted();
      const options = { grant: await token(), timeoutMs: ANSWER_MARGIN_MS, signal };
      return (await connection.content.place({ ...of, offset, content: piece }, options)).nextOffset;
    };
    let offset = await send(0, Buffer.alloc(0));
    while (offset < upload.bytes) {
      const end = Math.min(offset + PIECE_BYTES, upload.bytes);
      const next = await send(offset, await this.ports.uploads.read(upload.fileId, offset, end));
      if (next <= offset) throw new UnavailableError('upload_stuck', `Workspace ${row._id} does not take its upload.`);
      offset = next;
    }
  }

  private async ask(
    { order }: Placed,
    { content, attempt }: Taken,
    sandbox: LiveSandbox,
    { token, report, signal }: PrepareContext,
  ): Promise<contentPb.BringEnd> {
    const { id: contentId, replace } = content;
    const { maxBytes } = this.ports;
    const orderJson = JSON.stringify(order);
    const request = { contentId, attempt, orderJson, replace, maxBytes, timeoutMs: BRING_MS };
    const options = { grant: await token(), timeoutMs: BRING_MS + ANSWER_MARGIN_MS, signal };
    for await (const { message } of sandbox.connection.content.bring(request, options)) {
      if (message?.$case === 'doing') report(waiting(sandbox, message.value));
      if (message?.$case === 'end') return message.value;
    }
    throw new UnavailableError('content_unanswered', 'The sandbox did not say what became of the content.');
  }

  private async renew(taken: Taken, lost: AbortController): Promise<void> {
    try {
      const kept = await this.write(taken, { until: new Date(Date.now() + LEASE_MS) });
      if (!kept) lost.abort();
    } catch (error) {
      this.ports.logger.warn({ err: error, workspaceId: taken.row._id }, 'the lease of content could not be renewed');
    }
  }

  private async settle(taken: Taken, { status, reason, message, head }: contentPb.BringEnd): Promise<void> {
    const { row } = taken;
    const said = { ...(reason && { reason }), ...(message && { message }), ...(head && { head }) };
    const isReady = status === 'ready';
    const isCurrent = await this.write(taken, { status: isReady ? 'ready' : 'failed', ...said });
    const log = { workspaceId: row._id, tenantId: row.tenantId, kind: taken.content.source.kind, reason };
    this.ports.logger.info(log, isReady ? 'content brought' : 'content not brought');
    // What was sent in its place meanwhile is still to be brought.
    if (isReady && isCurrent) await this.ports.uploads.removeOf(row.tenantId, row._id, this.ports.orders.kept);
  }

  /** A sandbox that was lost says nothing about the content, but three of them do. */
  private async notBrought(taken: Taken, error: unknown, isLeft: boolean): Promise<void> {
    if (error instanceof Unfit) return void (await this.write(taken, { status: 'failed', ...error.words }));
    const losses = taken.content.losses + (isLeft ? 0 : 1);
    const message = error instanceof Error ? error.message : String(error);
    const isHopeless = losses >= LOSSES_MAX || (isMargayError(error) && error.code === 'UNIMPLEMENTED');
    const over = { status: 'failed' as const, reason: 'sandbox_lost', message };
    const again = { status: 'pending' as const, losses };
    await this.write(taken, isHopeless ? over : again);
    if (!isHopeless || isLeft) throw error;
  }

  /** Changes the content as long as this try is the last one. */
  private async write({ row, attempt }: Taken, change: Partial<StoredContent>): Promise<boolean> {
    const changed = await this.ports.records.changeLatest(row, (latest) => {
      if (latest.contentAttempt !== attempt || latest.content?.status !== 'running') return undefined;
      const { owner, until, ...content } = latest.content;
      const lease = change.status === undefined ? { owner, until } : {};
      return { set: { content: withoutNothing({ ...content, ...lease, ...change }) } };
    });
    return changed !== undefined;
  }
}

interface Taken {
  row: WorkspaceDocument;
  content: StoredContent;
  attempt: number;
}

function madeFor(wish: SandboxWish, row: WorkspaceDocument | undefined) {
  const isSession = wish.owner !== undefined && wish.workspace.kind === 'own';
  const owner = isSession ? { owner: wish.owner } : {};
  return { class: row?.class ?? 'default', storage: row?.storage ?? 'volume', ...owner } as const;
}

/** An upload that has not come. */
function isAwaited({ source, upload }: StoredContent): boolean {
  return source.kind === 'upload' && upload === undefined;
}

function failed(content: StoredContent): Error {
  const { reason, message } = isAwaited(content)
    ? { reason: 'upload_missing', message: 'No file has been uploaded to it yet.' }
    : content;
  return new FailedPreconditionError(
    'content_failed',
    `The files of this workspace could not be brought (${reason ?? 'unknown'}): ${message ?? ''} Nothing was run; bring them anew with POST /api/workspaces/{id}/content.`,
  );
}

function waiting({ ref: { sandboxId } }: LiveSandbox, message: string) {
  return { state: 'starting', reason: 'content' as const, message, sandboxId };
}

/** The store would keep `undefined` as null. */
function withoutNothing<T extends object>(value: T): T {
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== undefined)) as T;
}
