import { Injectable, type CallHandler, type ExecutionContext, type NestInterceptor } from '@nestjs/common';
import type { FastifyReply } from 'fastify';
import { map, type Observable } from 'rxjs';

const JSON_TYPE = 'application/json; charset=utf-8';

/** What a handler wants to be sent. */
export class Answer {
  constructor(
    readonly status: number,
    /** An object is sent as JSON; text and streams as they are. */
    readonly body: unknown,
    readonly headers: Record<string, string> = {},
  ) {}

  /** Text that is JSON already. */
  static json(text: string, status = 200): Answer {
    return new Answer(status, text, { 'content-type': JSON_TYPE });
  }

  /** Marks a repeat under an idempotency key. */
  replayed(isReplayed: boolean): Answer {
    return isReplayed ? new Answer(this.status, this.body, { ...this.headers, 'idempotency-replayed': 'true' }) : this;
  }
}

@Injectable()
export class AnswerInterceptor implements NestInterceptor {
  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const reply = context.switchToHttp().getResponse<FastifyReply>();
    return next.handle().pipe(map((result) => (result instanceof Answer ? unwrap(result, reply) : result)));
  }
}

function unwrap(answer: Answer, reply: FastifyReply): unknown {
  reply.status(answer.status).headers(answer.headers);
  return answer.body;
}
