import { readLog } from '../processes/log-file';

interface Line {
  level?: string;
  isolation?: string;
  msg?: string;
}

/**
 * What the newest start of tool-executor says in its log of sandboxes that hold commands less than bubblewrap does; undefined
 * where they hold them as well.
 */
export async function sandboxWarning(logFile: string): Promise<string | undefined> {
  const text = await readLog(logFile, 0).catch(() => ''); // without a log there is nothing to tell
  const last = text
    .split('\n')
    .map(parsed)
    .findLast(({ isolation }) => isolation !== undefined);
  return last?.level === 'warn' ? last.msg : undefined;
}

function parsed(line: string): Line {
  if (!line.startsWith('{')) return {};
  try {
    return JSON.parse(line) as Line;
  } catch {
    return {}; // cut short
  }
}
