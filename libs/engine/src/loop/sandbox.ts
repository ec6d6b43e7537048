import type { SandboxWait } from '../ports';
import type { Writer } from './writer';

/** Sent while the run has committed to no sandbox: every sandbox refuses it and says who it is. */
export const NO_INCARNATION = 'none';

/**
 * Which sandbox this epoch has committed to. It commits before its first call that is not pure, on a head of its own
 * epoch, so that an owner to come knows where the call may have run.
 */
export class Sandbox {
  private committedTo: string | undefined;
  private shown = '';
  private storing: { incarnation: string; stored: Promise<unknown> } | undefined;

  constructor(
    private readonly writer: Writer,
    /** Where calls ran last, as far as is known: by the log, or by an outcome. */
    private known: string | undefined,
    /** Takes note of a commitment that is under way. */
    private readonly onCommitment: (incarnation: string) => void,
  ) {}

  /** Set once this epoch's commitment is sent. */
  get incarnation(): string | undefined {
    return this.committedTo;
  }

  /** A call ran there. */
  observe(incarnation: string | undefined): void {
    if (incarnation) this.known = incarnation;
  }

  /** Whether it is to be shown: calls that wait at once are told the same. */
  isNews(wait: SandboxWait): boolean {
    const words = JSON.stringify(wait);
    const isNews = words !== this.shown;
    this.shown = words;
    return isNews;
  }

  /** The commitment to put into a commit that precedes the calls anyway; undefined if there is none to make. */
  fold(): { incarnation: string } | undefined {
    if (this.committedTo !== undefined || this.known === undefined) return undefined;
    this.committedTo = this.known;
    this.onCommitment(this.known);
    return { incarnation: this.known };
  }

  /** The incarnation to call with, committed to if one is known. */
  async beforeCall(): Promise<string> {
    if (this.committedTo === undefined && this.known !== undefined) await this.commitTo(this.known);
    await this.storing?.stored;
    return this.committedTo ?? NO_INCARNATION;
  }

  /** Goes over to another sandbox; several calls that were refused at once share the commit. */
  async commitTo(incarnation: string): Promise<void> {
    if (this.storing?.incarnation !== incarnation) {
      const stored = this.writer.commit({ events: [], records: [], sandbox: { incarnation } });
      this.storing = { incarnation, stored };
      this.committedTo = incarnation;
      this.known = incarnation;
      this.onCommitment(incarnation);
    }
    await this.storing.stored;
  }
}
