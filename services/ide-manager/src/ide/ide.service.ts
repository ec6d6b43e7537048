import { InvalidArgumentError } from '@margay/errors';
import { Injectable } from '@nestjs/common';

export interface IdeState {
  state: 'absent';
  /** Why, in words for a person. */
  reason: string;
}

@Injectable()
export class IdeService {
  /** Browser IDEs cannot be started yet: whatever the session, the truth is that it has none. */
  get(_tenantId: string, sessionId: string): IdeState {
    if (!sessionId) throw new InvalidArgumentError('session_id_missing', 'Name the session whose IDE is asked for.');
    return { state: 'absent', reason: `Session ${sessionId} has no IDE: this installation cannot start any yet.` };
  }
}
