import { Controller } from '@nestjs/common';
import { z } from 'zod';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { OpenApi } from '../openapi/open-api';
import { StreamHub } from '../stream/stream-hub';
import { VERSION } from '../version';

const OF_GATEWAY = { method: 'GET', service: 'gateway', family: 'margay', errors: 'envelope' } as const;

const Health = z.object({ status: z.literal('ok') });
const System = z.object({
  versions: z.object({ margay: z.string(), api: z.string() }),
  features: z.record(z.string(), z.boolean()),
  counts: z.object({ streams: z.number() }),
});

@Controller()
export class SystemController {
  constructor(
    private readonly hub: StreamHub,
    private readonly openApi: OpenApi,
  ) {}

  @Operation({
    ...OF_GATEWAY,
    path: '/healthz',
    summary: 'Whether the gateway runs',
    scope: 'public',
    responses: { 200: { description: 'it does', schema: Health } },
    sample: { status: 200 },
  })
  health(): Answer {
    return new Answer(200, { status: 'ok' });
  }

  @Operation({
    ...OF_GATEWAY,
    path: '/api/system',
    summary: 'Versions, features and counts of this replica',
    scope: 'any',
    responses: { 200: { description: 'facts about the system', schema: System } },
    sample: { status: 200 },
  })
  system(): Answer {
    const versions = { margay: VERSION, api: '1' };
    return new Answer(200, { versions, features: { identity: false }, counts: { streams: this.hub.size } });
  }

  @Operation({
    ...OF_GATEWAY,
    path: '/openapi.json',
    aliases: ['/swagger.json'],
    summary: 'This document',
    scope: 'public',
    responses: { 200: { description: 'OpenAPI 3.1', schema: z.looseObject({ openapi: z.string() }) } },
    sample: { status: 200 },
  })
  document(): Answer {
    return Answer.json(this.openApi.text);
  }
}
