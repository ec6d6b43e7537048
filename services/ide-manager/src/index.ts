export { startIdeManager } from './start-ide-manager';
