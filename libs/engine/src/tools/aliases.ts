/**
 * Every other name of a tool, and the tools it stands for (rulings 51, A10). One capability has one canonical id; the
 * model sees canonical ids only, and aliases are understood in allow-lists, rules, matchers and calls.
 */
const ALIASES: Readonly<Record<string, readonly string[]>> = {
  Read: ['read_file'],
  NotebookRead: ['read_file'],
  LS: ['aider_list_dir_tool'],
  Glob: ['glob'],
  Grep: ['grep'],
  Bash: ['aider_shell_tool'],
  BashOutput: ['shell_session_tool'],
  KillShell: ['shell_session_tool'],
  Edit: ['aider_edit_block_tool', 'file_edit_tool'],
  MultiEdit: ['aider_edit_block_tool', 'file_edit_tool'],
  Write: ['aider_edit_block_tool', 'file_edit_tool'],
  NotebookEdit: ['notebook_edit'],
  GetDiagnostics: ['get_diagnostics'],
  LSP: ['lsp_tool'],
  WebFetch: ['web_fetch'],
  WebSearch: ['web_search'],
  TodoWrite: ['update_todos'],
  Task: ['spawn_agent'],
  Agent: ['spawn_agent'],
  Skill: ['activate_skill'],
  ToolSearch: ['tool_search'],
  AskUserQuestion: ['ask_user_question'],
  ExitPlanMode: ['exit_plan_mode'],
};

const SINGLE_MCP = /^mcp_(?!_)([^_].*)$/;

/** Canonical ids that a name may stand for, best first; a name that is no alias stands for itself. */
export function canonicalIds(name: string): readonly string[] {
  return Object.hasOwn(ALIASES, name) ? (ALIASES[name] ?? [name]) : [name];
}

/** Whether a name from an allow-list or a call means this tool; `mcp_<server>_<tool>` means `mcp__<server>__<tool>`. */
export function namesTool(name: string, toolId: string): boolean {
  if (canonicalIds(name).includes(toolId)) return true;
  return SINGLE_MCP.test(name) && toolId.startsWith('mcp__') && collapse(toolId) === collapse(name);
}

function collapse(id: string): string {
  return id.replace(/_+/g, '_');
}

/** An allow-list in canonical ids, each once, in order. */
export function expandAliases(names: readonly string[]): string[] {
  return [...new Set(names.flatMap(canonicalIds))];
}
