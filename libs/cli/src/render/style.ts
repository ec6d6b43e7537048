export interface Style {
  dim(text: string): string;
  bold(text: string): string;
  red(text: string): string;
  green(text: string): string;
  cyan(text: string): string;
}

const paint =
  (open: number, close: number) =>
  (text: string): string =>
    text && `\x1b[${open}m${text}\x1b[${close}m`;

const same = (text: string): string => text;

export const COLORS: Style = {
  dim: paint(2, 22),
  bold: paint(1, 22),
  red: paint(31, 39),
  green: paint(32, 39),
  cyan: paint(36, 39),
};

export const NO_COLORS: Style = { dim: same, bold: same, red: same, green: same, cyan: same };
