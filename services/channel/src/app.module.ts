import { Module } from '@nestjs/common';
import { AccountGrpc } from './account/account.grpc';
import { AccountService } from './account/account.service';

@Module({ providers: [AccountGrpc, AccountService] })
export class AppModule {}
