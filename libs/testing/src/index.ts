export { acceptCommand, createCommand, hashed, messageCommand, runRequest, type CommitStoreHarness } from '@margay/log';
export { commitStoreContract } from './commit-store-contract';
export { FakeSandbox, type FakeTool, type SandboxMemory } from './engine/fake-sandbox';
export { journalContract, type ContractCase, type JournalHarness } from './engine/journal-contract';
export { VirtualClock } from './engine/virtual-clock';
export { runWorld, until, type RunWorld } from './engine/run-world';
export { assertPaired, ScriptedModel, scriptedModel, type ScriptedAnswer } from './engine/scripted-model';
export { toolDescriptor } from './engine/tool-descriptor';
export {
  answer,
  byConversation,
  callTools,
  sequence,
  type Answer,
  type Script,
  type ScriptedError,
  type ScriptedToolCall,
  type ScriptedUsage,
  type ScriptFunction,
  type ScriptRequest,
} from './scripted-model/answer';
export { type ChatMessage, type ChatTool } from './scripted-model/chat-request';
export { conversationOf, type Conversation, type ConversationResult } from './scripted-model/conversation';
export {
  ScriptedModelServer,
  type RecordedRequest,
  type ScriptedModelOptions,
} from './scripted-model/scripted-model-server';
export { FakeGateway, type GatewayRequest, type Interceptor } from './gateway/fake-gateway';
export { FakeSession, type StreamCut } from './gateway/fake-session';
export { QuickClock } from './gateway/quick-clock';
export { GitHost } from './content/git-host';
export { zipOf, type ZipEntry } from './content/zip-archive';
export { FakeS3, type S3Refusal, type S3Request } from './blobs/fake-s3';
export { realBucket, type RealBucket } from './config';
