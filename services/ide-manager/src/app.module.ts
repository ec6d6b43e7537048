import { Module } from '@nestjs/common';
import { IdeGrpc } from './ide/ide.grpc';
import { IdeService } from './ide/ide.service';

@Module({ providers: [IdeGrpc, IdeService] })
export class AppModule {}
