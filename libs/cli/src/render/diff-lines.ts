export interface DiffLine {
  sign: '+' | '-' | ' ' | '@' | '#';
  /** Line number in the new file, in the old one for removed lines. */
  number: number | undefined;
  text: string;
}

/** The lines of a unified diff with their numbers; file headers are `#`, hunk headers `@`. */
export function diffLines(diff: string): DiffLine[] {
  let oldLine = 0;
  let newLine = 0;
  let isInHunk = false;
  const lines: DiffLine[] = [];
  for (const line of diff.replace(/\n$/, '').split('\n')) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(line);
    if (hunk) {
      [oldLine, newLine, isInHunk] = [Number(hunk[1]), Number(hunk[2]), true];
      lines.push({ sign: '@', number: undefined, text: line });
    } else if (!isInHunk || /^(diff |index |\\ )/.test(line) || /^(--- |\+\+\+ )/.test(line)) {
      if (line.startsWith('+++ ')) lines.push({ sign: '#', number: undefined, text: line.slice(4) });
    } else if (line.startsWith('+')) lines.push({ sign: '+', number: newLine++, text: line.slice(1) });
    else if (line.startsWith('-')) lines.push({ sign: '-', number: oldLine++, text: line.slice(1) });
    else {
      lines.push({ sign: ' ', number: newLine++, text: line.slice(1) });
      oldLine += 1;
    }
  }
  return lines;
}
