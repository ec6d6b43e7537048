export type Shell = (command: string) => { exit_code: number; stdout: string };

/** A workspace in memory whose tools answer as the platform's do, enough for the demonstration model's specs. */
export class FakeWorkspace {
  readonly calls: { name: string; arguments: Record<string, unknown> }[] = [];
  private readonly read = new Set<string>();

  readonly files: Map<string, string>;
  private readonly shell: Shell;

  constructor(files: Map<string, string>, shell: Shell = () => ({ exit_code: 0, stdout: '' })) {
    this.files = files;
    this.shell = shell;
  }

  run(name: string, given: Record<string, unknown>): string {
    this.calls.push({ name, arguments: given });
    const text = (key: string): string => String(given[key] ?? '');
    if (name === 'aider_list_dir_tool')
      return JSON.stringify({ kind: 'dir', path: '.', entries: [...this.files.keys()].sort() });
    if (name === 'read_file') return this.readFile(text('path'), Number(given['offset'] ?? 0));
    if (name === 'file_edit_tool') return this.replace(text('file_path'), text('old_string'), text('new_string'));
    if (name === 'aider_edit_block_tool') return this.editBlock(text('content'));
    if (name === 'aider_shell_tool')
      return JSON.stringify({
        kind: 'shell',
        command: text('command'),
        cwd: '/w',
        ...this.shell(text('command')),
        stderr: '',
        duration_ms: 12,
      });
    return 'ERROR: Tool not available';
  }

  private readFile(path: string, offset: number): string {
    const content = this.files.get(path);
    if (content === undefined) return `ERROR: No such file: ${path}`;
    const slice = `${path}:${offset}:${content}`;
    if (this.read.has(slice))
      return 'File unchanged since last read. The content from the earlier Read tool_result in this conversation is still current — refer to that instead of re-reading.';
    this.read.add(slice);
    const lines = content.replace(/\n$/, '').split('\n');
    const shown = lines.slice(offset, offset + 2000).map((line, index) => `${offset + index + 1}\t${line}`);
    if (offset + 2000 < lines.length) shown.push('... (truncated — use offset/limit to read more)');
    return JSON.stringify({ kind: 'file', path, text: shown.join('\n'), total_lines: lines.length });
  }

  private editBlock(content: string): string {
    const match = /^(.+)\n```text\n<{7} SEARCH\n([\s\S]*?)={7}\n([\s\S]*?)>{7} REPLACE\n```\n$/.exec(content);
    if (!match) return 'ERROR: No SEARCH/REPLACE blocks found.';
    return this.replace(match[1] ?? '', match[2] ?? '', match[3] ?? '');
  }

  private replace(path: string, before: string, after: string): string {
    const old = this.files.get(path) ?? '';
    if (before !== '' && old.split(before).length !== 2) return `ERROR: old_string not found in ${path}.`;
    this.files.set(path, before === '' ? old + after : old.replace(before, () => after));
    const lines = (text: string, sign: string): string[] =>
      text
        .replace(/\n$/, '')
        .split('\n')
        .filter(Boolean)
        .map((line) => sign + line);
    const diff = [`--- a/${path}`, `+++ b/${path}`, '@@ -1 +1 @@', ...lines(before, '-'), ...lines(after, '+')].join(
      '\n',
    );
    return JSON.stringify({ kind: 'diff', title: 'File Edit', text: `${diff}\n`, files: [path] });
  }
}
