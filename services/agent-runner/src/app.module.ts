import { Module, type DynamicModule } from '@nestjs/common';
import { RunnerApplication, type RunnerContext } from './runner-application';

@Module({})
export class AgentRunnerModule {
  static with(context: RunnerContext): DynamicModule {
    return {
      module: AgentRunnerModule,
      providers: [{ provide: RunnerApplication, useFactory: () => new RunnerApplication(context) }],
    };
  }
}
