import { connect, type Connection, type GlobalOptions } from './connection';
import { JsonRenderer, QuietRenderer } from './render/machine-renderers';
import { PlainRenderer } from './render/plain-renderer';
import { PrettyRenderer } from './render/pretty-renderer';
import type { Renderer } from './render/renderer';
import { jsonLine } from './render/sanitize';
import { COLORS, NO_COLORS, type Style } from './render/style';
import type { Terminal } from './terminal';

export interface Answer {
  /** The document of `--json`. */
  json: object;
  lines: string[];
  /** With `--quiet`; default: the same lines. */
  quiet?: string[];
}

/** What every command works with. */
export class CommandContext {
  readonly style: Style;
  readonly #isPretty: boolean;
  #connection: Promise<Connection> | undefined;

  constructor(
    readonly terminal: Terminal,
    readonly options: GlobalOptions,
  ) {
    const { environment, stdout } = terminal;
    this.#isPretty = stdout.isTerminal && !environment.isDumb && !options.plain;
    this.style = this.#isPretty && options.color !== false && environment.wantsColor ? COLORS : NO_COLORS;
  }

  connect(): Promise<Connection> {
    this.#connection ??= connect(this.options, this.terminal);
    return this.#connection;
  }

  print({ json, lines, quiet }: Answer): void {
    const { stdout } = this.terminal;
    if (this.options.json) return stdout.write(`${jsonLine(json)}\n`);
    for (const line of (this.options.quiet && quiet) || lines) stdout.write(`${line}\n`);
  }

  /** A remark beside the result, on standard error; not for machines. */
  remark(text: string): void {
    const { json, quiet } = this.options;
    if (!json && !quiet) this.terminal.stderr.write(`${this.style.dim(text)}\n`);
  }

  renderer(wants: { raw?: boolean; showsUser?: boolean } = {}): Renderer {
    const { json, quiet } = this.options;
    if (json || wants.raw) return new JsonRenderer(this.terminal, wants.raw ?? false);
    if (quiet) return new QuietRenderer(this.terminal);
    if (!this.#isPretty) return new PlainRenderer(this.terminal);
    return new PrettyRenderer(this.terminal, this.style, wants.showsUser ?? false);
  }
}
