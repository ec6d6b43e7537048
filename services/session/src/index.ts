export { startSession } from './start';
export { SessionConfig } from './config';
export { MongoCommitStore } from './commits/mongo-commit-store';
