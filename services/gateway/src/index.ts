export { startGateway } from './start';
