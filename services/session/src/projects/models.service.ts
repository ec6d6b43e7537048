import { listModels } from '@margay/providers';
import type { Logger } from '@margay/platform';
import type { SessionConfig } from '../config';

const CACHE_MS = 60_000;
/** A provider that can't be reached is asked again after so long. */
const FAILURE_CACHE_MS = 5_000;
const ASK_TIMEOUT_MS = 5_000;

type ModelsConfig = Pick<SessionConfig, 'MARGAY_MODEL' | 'OPENAI_BASE_URL' | 'OPENAI_API_KEY'>;

/** Models of the configured provider. */
export class ModelsService {
  private cached?: { models: string[]; untilMs: number };

  constructor(
    private readonly config: ModelsConfig,
    private readonly logger: Logger,
  ) {}

  get defaultModel(): string | undefined {
    return this.config.MARGAY_MODEL;
  }

  /** What the provider offers, the default first; only the default while it can't be reached. */
  async list(): Promise<string[]> {
    if (this.cached && this.cached.untilMs > performance.now()) return this.cached.models;
    const offered = await this.ask();
    const own = this.defaultModel === undefined ? [] : [this.defaultModel];
    const models = [...new Set([...own, ...(offered ?? [])])];
    this.cached = { models, untilMs: performance.now() + (offered ? CACHE_MS : FAILURE_CACHE_MS) };
    return models;
  }

  private async ask(): Promise<string[] | undefined> {
    const { OPENAI_BASE_URL: baseUrl, OPENAI_API_KEY: apiKey = '' } = this.config;
    if (baseUrl === undefined && apiKey === '') return [];
    try {
      const signal = AbortSignal.timeout(ASK_TIMEOUT_MS);
      return await listModels({ ...(baseUrl === undefined ? {} : { baseUrl }), apiKey, signal });
    } catch (error) {
      this.logger.warn({ err: error }, 'the model provider could not be asked for its models');
      return undefined;
    }
  }
}
