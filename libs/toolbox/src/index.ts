export { BUILTIN_TOOLS, findBuiltinTool, outerTimeoutMs } from './descriptors';
export { PathPolicy, type PathPolicyOptions } from './files/paths';
export { removeTree } from './files/remove-tree';
export { recoverFiles } from './files/replace-files';
export { localHands, type LocalCallOptions, type LocalHands, type LocalHandsOptions } from './local-hands';
export { nodePorts, type NodePorts } from './node-ports';
export {
  ToolFailure,
  type CallContext,
  type FileVersion,
  type PreparedEdit,
  type PreparedFile,
  type ToolOutcome,
  type ToolResultValue,
  type ToolStatus,
} from './outcome';
export { OutputLog, type OutputLogOptions, type OutputPreview } from './shell/output-log';
export { killTree, listProcesses, treeMembers, type TreeRoot } from './shell/process-tree';
export { ShellHost, type ShellHostOptions } from './shell/shell-host';
export { DEFAULT_LIMITS, PROFILES, shellEnvironment, type ShellLimits } from './shell/spawn-shell';
export { pause } from './pause';
export { Toolbox, timeoutReason } from './toolbox';
export { RandomIds, SystemClock } from './system-ports';
