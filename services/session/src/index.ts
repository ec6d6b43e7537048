export { startSession } from './start';
export { SessionConfig } from './config';
export { MongoCommitStore } from './commits/mongo-commit-store';
export { OperatorStore } from './upkeep/operator-store';
export { type Rebuilt } from './upkeep/rebuild';
export { type Verification } from './upkeep/verify';
export { clockSkewMs } from './store/store-clock';
export { storeContract } from './store/store-contract';
