export { runCli } from './cli';
export { readEnvironment, type Environment } from './config';
export { EXIT } from './failures';
export { type Output, type Terminal } from './terminal';
