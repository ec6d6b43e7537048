import 'reflect-metadata';
import { idePb } from '@margay/contracts';
import { parseConfig, startGrpcApplication, type RunningService, type ServiceShared } from '@margay/platform';
import { AppModule } from './app.module';
import { IdeManagerConfig } from './config';
import { IdeGrpc } from './ide/ide.grpc';

export async function startIdeManager(environment: NodeJS.ProcessEnv, shared: ServiceShared): Promise<RunningService> {
  const config = parseConfig(IdeManagerConfig, environment);
  return startGrpcApplication({
    service: 'ide-manager',
    module: AppModule,
    listen: config.MARGAY_IDE_MANAGER_LISTEN,
    keysDirectory: config.MARGAY_KEYS_DIR,
    shared,
    serve: (server, application) => server.add(idePb.IdesDefinition, application.get(IdeGrpc)),
  });
}
