import type { channelPb } from '@margay/contracts';
import type { CallContext, GrpcHandlers } from '@margay/platform';
import { Injectable } from '@nestjs/common';
import { AccountService } from './account.service';

@Injectable()
export class AccountGrpc implements GrpcHandlers<channelPb.ChannelsDefinition> {
  constructor(private readonly accounts: AccountService) {}

  async listAccounts(_: channelPb.ListAccountsRequest, context: CallContext): Promise<channelPb.ListAccountsResponse> {
    return { accountsJson: this.accounts.list(context.principal().tenantId).map((account) => JSON.stringify(account)) };
  }
}
