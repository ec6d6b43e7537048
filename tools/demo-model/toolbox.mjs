// The tools a run offers, by what they are for. A call is `{ name, arguments }`.

const NAMES = {
  list: ['aider_list_dir_tool'],
  read: ['read_file'],
  shell: ['aider_shell_tool'],
  edit: ['aider_edit_block_tool', 'file_edit_tool'],
};

export class Toolbox {
  constructor(names) {
    this.names = names;
  }

  has(purpose) {
    return this.find(purpose) !== undefined;
  }

  find(purpose) {
    return NAMES[purpose].find((name) => this.names.includes(name));
  }

  list(path) {
    return { name: this.find('list'), arguments: { path } };
  }

  read(path, offset) {
    return { name: this.find('read'), arguments: offset === undefined ? { path } : { path, offset } };
  }

  shell(command) {
    return { name: this.find('shell'), arguments: { command } };
  }

  /** Replaces `before` by `after`; an empty `before` creates the file (or appends to it). */
  edit(path, before, after) {
    const name = this.find('edit');
    if (name === 'file_edit_tool') {
      // A read does not tell whether the last line ends with a newline, so what replaces something leaves it alone.
      const cut = (text) => (before === '' ? text : text.replace(/\n$/, ''));
      return { name, arguments: { file_path: path, old_string: cut(before), new_string: cut(after) } };
    }
    const block = ['<<<<<<< SEARCH', ...lines(before), '=======', ...lines(after), '>>>>>>> REPLACE'];
    return { name, arguments: { content: [path, '```text', ...block, '```', ''].join('\n') } };
  }
}

const lines = (text) => (text === '' ? [] : text.replace(/\n$/, '').split('\n'));

/** The sentence for a task that lacks its tool. */
export const lacking = (purpose) =>
  `This run offers me no tool to ${{ list: 'list files', read: 'read files', shell: 'run commands', edit: 'edit files' }[purpose]} ` +
  `(${NAMES[purpose].join(' or ')})`;
