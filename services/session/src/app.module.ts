import { Module, type DynamicModule } from '@nestjs/common';
import { MongoConnection, mongoModule } from '@margay/platform/mongo';
import { SessionApplication, type SessionContext } from './session-application';

@Module({})
export class SessionModule {
  static with(context: SessionContext): DynamicModule {
    const { config, logger, management } = context;
    return {
      module: SessionModule,
      imports: [
        mongoModule({
          url: config.MARGAY_MONGODB_URL,
          database: config.MARGAY_MONGODB_DATABASE,
          logger,
          name: 'session',
          registry: management.registry,
        }),
      ],
      providers: [
        {
          provide: SessionApplication,
          inject: [MongoConnection],
          useFactory: (mongo: MongoConnection) => new SessionApplication(context, mongo),
        },
      ],
    };
  }
}
