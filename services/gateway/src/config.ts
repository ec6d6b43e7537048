import { parseConfig } from '@margay/platform';
import { z } from 'zod';

const KNOWN_DEFAULT_TOKEN = 'msk-strong-password';
const wholeNumber = (fallback: number) => z.coerce.number().int().positive().default(fallback);

const Environment = z.object({
  MARGAY_GATEWAY_LISTEN: z.string().regex(/:\d+$/).default('127.0.0.1:8080').describe('host:port of the public API'),
  MARGAY_SESSION_URL: z.string().min(1).describe('host:port of the session service'),
  MARGAY_TOOL_EXECUTOR_URL: z.string().min(1).describe('host:port of the tool executor'),
  MARGAY_NATS_URL: z.string().min(1).describe('address of the NATS server'),
  MARGAY_KEYS_DIR: z.string().min(1).describe('folder with gateway.key.pem and trust.json'),
  MARGAY_CORS_ORIGIN: z.string().default('*').describe('allowed origin, several separated by commas, or *'),
  MARGAY_MAX_CONCURRENT_STREAMS: wholeNumber(10_000).describe('open event streams of this replica'),
  MARGAY_RATE_LIMIT_PER_SECOND: wholeNumber(200).describe('requests per second and tenant of this replica'),
  MARGAY_RATE_LIMIT_BURST: wholeNumber(1_000).describe('requests a tenant may send at once'),
  MARGAY_STREAM_DRAIN_SECONDS: z.coerce
    .number()
    .min(0)
    .max(60)
    .default(5)
    .describe('seconds over which open streams are closed on shutdown'),
  MARGAY_STREAM_HEARTBEAT_SECONDS: z.coerce
    .number()
    .min(0.1)
    .max(60)
    .default(15)
    .describe('a comment is sent to a stream silent for so long: less than any proxy on the way waits'),
  MARGAY_MASTER_TOKEN: z
    .string()
    .min(24)
    .refine((token) => token !== KNOWN_DEFAULT_TOKEN)
    .optional()
    .describe('at least 24 characters and not the well-known default'),
});

export interface GatewayConfig {
  listen: { host: string; port: number };
  sessionUrl: string;
  toolExecutorUrl: string;
  natsUrl: string;
  keysDirectory: string;
  corsOrigins: '*' | string[];
  maxStreams: number;
  rateLimit: { perSecond: number; burst: number };
  streamDrainMs: number;
  heartbeatMs: number;
  masterToken?: string;
}

/** Throws InvalidArgumentError `bad_environment` listing the faulty names. */
export function readConfig(environment: NodeJS.ProcessEnv): GatewayConfig {
  const env = parseConfig(Environment, environment);
  const separator = env.MARGAY_GATEWAY_LISTEN.lastIndexOf(':');
  const origins = env.MARGAY_CORS_ORIGIN.split(',').map((origin) => origin.trim());
  return Object.freeze({
    listen: {
      host: env.MARGAY_GATEWAY_LISTEN.slice(0, separator).replace(/^\[|\]$/g, ''),
      port: Number(env.MARGAY_GATEWAY_LISTEN.slice(separator + 1)),
    },
    sessionUrl: env.MARGAY_SESSION_URL,
    toolExecutorUrl: env.MARGAY_TOOL_EXECUTOR_URL,
    natsUrl: env.MARGAY_NATS_URL,
    keysDirectory: env.MARGAY_KEYS_DIR,
    corsOrigins: origins.includes('*') ? '*' : origins,
    maxStreams: env.MARGAY_MAX_CONCURRENT_STREAMS,
    rateLimit: { perSecond: env.MARGAY_RATE_LIMIT_PER_SECOND, burst: env.MARGAY_RATE_LIMIT_BURST },
    streamDrainMs: env.MARGAY_STREAM_DRAIN_SECONDS * 1_000,
    heartbeatMs: env.MARGAY_STREAM_HEARTBEAT_SECONDS * 1_000,
    ...(env.MARGAY_MASTER_TOKEN === undefined ? {} : { masterToken: env.MARGAY_MASTER_TOKEN }),
  });
}
