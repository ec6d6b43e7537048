export { MongoConnection, type MongoConnectionOptions } from './mongo-connection';
export { mongoModule, MongoModule } from './mongo.module';
