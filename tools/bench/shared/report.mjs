// Figures for people, as aligned tables, and for programs, as one line of JSON each.
import { styleText } from 'node:util';

/** `{ p50, p95, p99, max }` of numbers; NaN where there are none. */
export function percentiles(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? NaN;
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99), max: sorted.at(-1) ?? NaN };
}

/** The middle one of measured turns, by a number of each. */
export function medianBy(samples, number) {
  return [...samples].sort((a, b) => number(a) - number(b))[Math.floor(samples.length / 2)];
}

const digitsOf = (value) => (Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : Math.abs(value) >= 1 ? 2 : 3);
const show = (value, unit) => `${value.toFixed(digitsOf(value))} ${unit}`.trimEnd();

/** Collects the figures of one bench; each may stand beside a baseline of the same run and an aim. */
export class Report {
  #rows = [];
  #section = '';
  #missed = 0;

  constructor({ bench, isJson, write }) {
    this.bench = bench;
    this.isJson = isJson;
    this.write = write;
  }

  /** How many figures missed their aim so far. */
  get missed() {
    return this.#missed;
  }

  /** Ends the table before it and opens the next one. */
  section(title) {
    this.end();
    this.#section = title;
  }

  /**
   * @param name what was measured, e.g. `gap p50`
   * @param options `unit`; `baseline: { name, value }`, printed with the ratio; `aim: { atMost | atLeast, because }`
   */
  figure(name, value, { unit = '', baseline, aim } = {}) {
    const ratio = baseline === undefined ? undefined : value / baseline.value;
    const isMet = aim === undefined ? undefined : aim.atMost === undefined ? value >= aim.atLeast : value <= aim.atMost;
    if (isMet === false) this.#missed += 1;
    this.#rows.push({ name, value, unit, baseline, ratio, aim, isMet });
    if (this.isJson)
      this.write(JSON.stringify({ bench: this.bench, section: this.#section, name, value, unit, baseline, ratio, aim, isMet })); // prettier-ignore
  }

  /** p50, p95 and p99 of milliseconds; aims and baselines by the same names. */
  milliseconds(name, values, { baseline, aims = {} } = {}) {
    const measured = percentiles(values);
    for (const share of ['p50', 'p95', 'p99'])
      this.figure(`${name} ${share}`, measured[share], {
        unit: 'ms',
        ...(baseline && { baseline: { name: `${baseline.name} ${share}`, value: baseline[share] } }),
        ...(aims[share] && { aim: aims[share] }),
      });
  }

  /** A remark under the table; not a figure. */
  note(text) {
    if (this.isJson) this.write(JSON.stringify({ bench: this.bench, section: this.#section, note: text }));
    else this.#rows.push({ note: text });
  }

  /** Prints the open table. */
  end() {
    if (!this.isJson && this.#rows.length > 0) this.#print();
    this.#rows = [];
  }

  #print() {
    const figures = this.#rows.filter(({ note }) => note === undefined);
    const cells = figures.map(({ name, value, unit, baseline, ratio, aim, isMet }) => [
      name,
      show(value, unit),
      baseline === undefined ? '' : `${baseline.name} ${show(baseline.value, unit)}`,
      ratio === undefined ? '' : `× ${ratio.toFixed(digitsOf(ratio))}`,
      aim === undefined ? '' : aimText(aim, unit),
      isMet === undefined ? '' : isMet ? 'met' : 'missed',
    ]);
    const head = ['', 'value', 'baseline', 'ratio', 'aim', ''];
    const widths = head.map((title, column) => Math.max(title.length, ...cells.map((row) => row[column].length)));
    const line = (row) =>
      row.map((text, column) => (column === 1 ? text.padStart(widths[1]) : text.padEnd(widths[column]))).join('  ').trimEnd(); // prettier-ignore
    this.write(`\n${styleText('bold', `${this.bench}: ${this.#section}`)}`);
    if (cells.length > 0) this.write(styleText('dim', line(head)));
    for (const row of cells) this.write(row[5] === 'missed' ? line(row).replace(/missed$/, styleText('yellow', 'missed')) : line(row)); // prettier-ignore
    for (const { note } of this.#rows) if (note !== undefined) this.write(styleText('dim', `  ${note}`));
  }
}

function aimText({ atMost, atLeast, because }, unit) {
  const text = atMost === undefined ? `≥ ${show(atLeast, unit)}` : `≤ ${show(atMost, unit)}`;
  return because === undefined ? text : `${text} (${because})`;
}
