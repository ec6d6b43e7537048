import { classifyError } from './classify-error';
import { openAiClient, type ProviderAccess } from './openai-model';

/** Names of the models an endpoint offers, sorted. @throws ModelFailure */
export async function listModels(access: ProviderAccess & { signal?: AbortSignal }): Promise<string[]> {
  const names: string[] = [];
  try {
    const { signal } = access;
    for await (const { id } of openAiClient(access).models.list(signal ? { signal } : {})) names.push(id);
  } catch (error) {
    access.signal?.throwIfAborted();
    throw classifyError(error, [access.apiKey ?? '', ...Object.values(access.headers ?? {})]);
  }
  return names.sort();
}
