import type { Style } from './style';

/** Columns two spaces apart; the last one is not padded. */
export function table(head: string[], rows: string[][], style: Style): string[] {
  const all = head.length ? [head, ...rows] : rows;
  const widths = (all[0] ?? []).map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  const text = (row: string[]): string =>
    row
      .map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0)))
      .join('  ')
      .trimEnd();
  return [...(head.length ? [style.dim(text(head))] : []), ...rows.map(text)];
}
