import { Module } from '@nestjs/common';
import { ToolsGrpc } from './tools/tools.grpc';
import { ToolsService } from './tools/tools.service';

@Module({ providers: [ToolsGrpc, ToolsService] })
export class AppModule {}
