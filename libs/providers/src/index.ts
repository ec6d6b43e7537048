export { listModels } from './openai/list-models';
export { openAiModel, type OpenAiModelOptions, type ProviderAccess } from './openai/openai-model';
export type { SystemMessages } from './openai/wire-messages';
