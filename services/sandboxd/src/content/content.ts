import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { appendFile, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { ContentOrder, type contentPb } from '@margay/contracts';
import { FailedPreconditionError, InvalidArgumentError } from '@margay/errors';
import { clone } from './clone';
import { ContentFailure, failureOf } from './content-failure';
import { Staging, type Marker } from './staging';
import { unpack } from './unpack';

export interface ContentOptions {
  /** The workspace. */
  root: string;
  /** The whole environment of git. */
  environment: Readonly<Record<string, string>>;
  /** Without a proxy it reaches nothing outside. */
  isBoxed: boolean;
}

const ID = /^[0-9a-f]{8,64}$/;

/** Brings what a workspace begins with. One at a time; a later try ends an earlier one. */
export class Content {
  private readonly staging: Staging;
  private turn: Promise<unknown> = Promise.resolve();
  private current?: AbortController;

  constructor(private readonly options: ContentOptions) {
    this.staging = new Staging(options.root);
  }

  /** Takes the next piece of an upload. A piece that is not the next one changes nothing. */
  async place({ contentId, offset, totalBytes, content }: contentPb.PlaceRequest): Promise<contentPb.PlaceResponse> {
    await this.staging.open();
    const file = this.staging.upload(checkedId(contentId));
    let held = await sizeOf(file);
    if (held > totalBytes) {
      await rm(file);
      held = 0;
    }
    if (held === offset && content.length > 0) {
      await appendFile(file, content);
      held += content.length;
    }
    return { nextOffset: held };
  }

  /**
   * Brings it, and tells what it is at. Leaving `signal` breaks it off; what is half there is removed by the next try.
   * @throws FailedPreconditionError `stale_attempt`, and what is worth another try
   */
  async bring(
    request: contentPb.BringRequest,
    left: AbortSignal,
    tell: (doing: string) => void,
  ): Promise<contentPb.BringEnd> {
    const order = orderOf(request.orderJson);
    this.current?.abort();
    const own = (this.current = new AbortController());
    const before = this.turn;
    const brought = before.then(() => this.bringNow(request, order, { left, own: own.signal, tell }));
    this.turn = brought.catch(() => undefined); // told to who asked
    return brought;
  }

  private async bringNow(
    { contentId, attempt, replace, maxBytes, timeoutMs }: contentPb.BringRequest,
    order: ContentOrder,
    { left, own, tell }: { left: AbortSignal; own: AbortSignal; tell: (doing: string) => void },
  ): Promise<contentPb.BringEnd> {
    const overdue = AbortSignal.timeout(timeoutMs);
    const signal = AbortSignal.any([left, own, overdue]);
    signal.throwIfAborted();
    try {
      const { done, wasMoving } = await this.staging.begin(checkedId(contentId), attempt);
      if (done) return ready(done.head);
      const marker: Marker = { contentId, attempt, phase: 'done', head: '' };
      if (order.kind === 'empty') return await this.bringTexts(order.files, marker);
      const head = await this.make(order, { contentId, maxBytes, signal, tell });
      tell('putting the files into their place');
      await this.staging.publish(marker, replace || wasMoving, head);
      return ready(head);
    } catch (error) {
      if (overdue.aborted && !left.aborted && !own.aborted)
        return this.failed(new ContentFailure('timeout', `It took longer than ${timeoutMs / 1_000} s.`));
      signal.throwIfAborted();
      const failure = failureOf(error);
      if (failure) return this.failed(failure);
      throw error;
    }
  }

  private async make(
    order: Exclude<ContentOrder, { kind: 'empty' }>,
    { contentId, ...run }: { contentId: string; maxBytes: number; signal: AbortSignal; tell: (doing: string) => void },
  ): Promise<string> {
    const into = this.staging.tree;
    const { environment, isBoxed } = this.options;
    if (order.kind === 'clone') {
      const hasNoWayOut = isBoxed && environment['HTTPS_PROXY'] === undefined;
      return clone({ order, into, environment, hasNoWayOut, ...run });
    }
    const file = this.staging.upload(contentId);
    if ((await hashOf(file)) !== order.sha256)
      throw new FailedPreconditionError('upload_incomplete', 'The uploaded file is not here, or not whole.');
    run.tell('unpacking');
    await unpack({ ...order, file, into, ...run });
    return '';
  }

  private async bringTexts(files: Record<string, string>, marker: Marker): Promise<contentPb.BringEnd> {
    for (const [name, text] of Object.entries(files))
      await writeFile(path.join(this.options.root, path.basename(name)), text, { flag: 'wx' }).catch(
        (error: NodeJS.ErrnoException) => {
          if (error.code !== 'EEXIST') throw error;
        },
      );
    await this.staging.finish(marker);
    return ready('');
  }

  private async failed({ reason, message }: ContentFailure): Promise<contentPb.BringEnd> {
    await this.staging.clear();
    return { status: 'failed', reason, message, head: '' };
  }
}

function ready(head: string): contentPb.BringEnd {
  return { status: 'ready', reason: '', message: '', head };
}

function orderOf(json: string): ContentOrder {
  const parsed = ContentOrder.safeParse(JSON.parse(json));
  if (parsed.success) return parsed.data;
  throw new InvalidArgumentError('bad_content', 'This sandbox does not know such content.');
}

function checkedId(id: string): string {
  if (ID.test(id)) return id;
  throw new InvalidArgumentError('bad_content', 'The id of the content is malformed.');
}

async function sizeOf(file: string): Promise<number> {
  return (await stat(file).catch(() => undefined))?.size ?? 0;
}

async function hashOf(file: string): Promise<string> {
  const hash = createHash('sha256');
  try {
    for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  return hash.digest('hex');
}
