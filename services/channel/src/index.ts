export { startChannel } from './start-channel';
