/**
 * Keys of span attributes, all of them: those of OpenTelemetry's semantic conventions (generative AI, HTTP, RPC) and our
 * own under `margay.`. Values are names, ids, numbers and stable words; never prompts, arguments, results or keys.
 */
export const ATTRIBUTE = {
  errorType: 'error.type',

  operation: 'gen_ai.operation.name',
  provider: 'gen_ai.provider.name',
  conversation: 'gen_ai.conversation.id',
  agentName: 'gen_ai.agent.name',
  requestModel: 'gen_ai.request.model',
  responseModel: 'gen_ai.response.model',
  finishReasons: 'gen_ai.response.finish_reasons',
  inputTokens: 'gen_ai.usage.input_tokens',
  outputTokens: 'gen_ai.usage.output_tokens',
  cacheReadTokens: 'gen_ai.usage.cache_read.input_tokens',
  cacheCreationTokens: 'gen_ai.usage.cache_creation.input_tokens',
  toolName: 'gen_ai.tool.name',
  toolCallId: 'gen_ai.tool.call.id',

  httpMethod: 'http.request.method',
  httpRoute: 'http.route',
  httpStatus: 'http.response.status_code',
  serverAddress: 'server.address',
  rpcSystem: 'rpc.system',
  rpcService: 'rpc.service',
  rpcMethod: 'rpc.method',

  tenant: 'margay.tenant.id',
  run: 'margay.run.id',
  epoch: 'margay.run.epoch',
  step: 'margay.step',
  toolEffect: 'margay.tool.effect',
  sandboxClass: 'margay.sandbox.class',
  commitKind: 'margay.commit.kind',
  commitNumber: 'margay.commit.number',
} as const;
