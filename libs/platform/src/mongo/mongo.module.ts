import { Module, type DynamicModule, type OnApplicationShutdown } from '@nestjs/common';
import { getConnectionToken } from '@nestjs/mongoose';
import { MongoConnection, type MongoConnectionOptions } from './mongo-connection';

/**
 * Provides MongoConnection and, for MongooseModule.forFeature, its connection to the whole application; closes it at the
 * end. Nest's own forRoot hangs or kills the process when there is no server.
 */
export function mongoModule(options: MongoConnectionOptions): DynamicModule {
  return {
    module: MongoModule,
    global: true,
    providers: [
      { provide: MongoConnection, useFactory: () => new MongoConnection(options).start() },
      {
        provide: getConnectionToken(),
        useFactory: (mongo: MongoConnection) => mongo.connection,
        inject: [MongoConnection],
      },
    ],
    exports: [MongoConnection, getConnectionToken()],
  };
}

@Module({})
export class MongoModule implements OnApplicationShutdown {
  constructor(private readonly mongo: MongoConnection) {}

  async onApplicationShutdown(): Promise<void> {
    await this.mongo.close();
  }
}
