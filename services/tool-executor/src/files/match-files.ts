/** Paths that a text means, the likeliest first: whole parts of paths, else letters in their order. */
export function matchFiles(files: readonly string[], query: string): string[] {
  const wanted = query.trim().toLowerCase();
  if (wanted === '') return [...files];
  const whole = ranked(files, (path) => rankOf(path, wanted));
  return whole.length > 0 ? whole : ranked(files, (path) => (hasInOrder(path, wanted) ? path.length : undefined));
}

/** Lower is better; equal ones keep their order. */
function ranked(files: readonly string[], rank: (path: string) => number | undefined): string[] {
  const found = files.flatMap((file) => {
    const place = rank(file.toLowerCase());
    return place === undefined ? [] : [{ file, place }];
  });
  return found.sort((a, b) => a.place - b.place).map(({ file }) => file);
}

function rankOf(path: string, wanted: string): number | undefined {
  if (!path.includes(wanted)) return undefined;
  const name = path.slice(path.lastIndexOf('/') + 1);
  if (name === wanted || path === wanted) return 0;
  if (name.startsWith(wanted)) return 1;
  if (path.startsWith(wanted)) return 2;
  return name.includes(wanted) ? 3 : 4;
}

function hasInOrder(path: string, wanted: string): boolean {
  let at = -1;
  for (const letter of wanted) {
    if (letter === ' ') continue;
    at = path.indexOf(letter, at + 1);
    if (at < 0) return false;
  }
  return true;
}
