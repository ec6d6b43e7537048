import 'reflect-metadata';
import { channelPb } from '@margay/contracts';
import { parseConfig, startGrpcApplication, type RunningService, type ServiceShared } from '@margay/platform';
import { AppModule } from './app.module';
import { ChannelConfig } from './config';
import { AccountGrpc } from './account/account.grpc';

export async function startChannel(environment: NodeJS.ProcessEnv, shared: ServiceShared): Promise<RunningService> {
  const config = parseConfig(ChannelConfig, environment);
  return startGrpcApplication({
    service: 'channel',
    module: AppModule,
    listen: config.MARGAY_CHANNEL_LISTEN,
    keysDirectory: config.MARGAY_KEYS_DIR,
    shared,
    serve: (server, application) => server.add(channelPb.ChannelsDefinition, application.get(AccountGrpc)),
  });
}
