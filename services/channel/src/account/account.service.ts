import { Injectable } from '@nestjs/common';

export interface Account {
  id: string;
  platform: string;
}

@Injectable()
export class AccountService {
  /** No adapter for a chat or mail platform exists yet, so no tenant can have an account. */
  list(_tenantId: string): Account[] {
    return [];
  }
}
