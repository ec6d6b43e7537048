import type { EventInput } from '@margay/contracts';
import type { BlobStore } from './blobs';
import type {
  AcceptCommand,
  Completion,
  FinishCommand,
  MessageCommand,
  RecoverCommand,
  RunnerCommand,
  StepCommand,
} from './command';
import { blobOf, FIELD_MAX_CHARS, offload, preview, previewFields, type Put } from './offload';
import type { SaidText } from './said-text';
import { jsonBytes } from './size';

/** Texts of fewer characters may still be larger in JSON: control characters take six bytes each. */
const TEXT_MAX_BYTES = 320 * 1024;

/**
 * The same command with everything large in the blob store, so that it fits into a commit: what a person said or the
 * model answered keeps a preview in its event and is whole in the private record.
 */
export async function offloadCommand<C extends AcceptCommand | MessageCommand | RecoverCommand | RunnerCommand>(
  tenantId: string,
  command: C,
  blobs: BlobStore,
): Promise<C> {
  const put: Put = (whole) => blobs.put(tenantId, Buffer.from(whole, 'utf8'));
  switch (command.kind) {
    case 'accept':
    case 'message':
    case 'recover':
      return { ...command, run: { ...command.run, ...(await shortText(command.run, put)) } };
    case 'step':
      return { ...command, ...(await offload(tenantId, command as StepCommand, blobs)) };
    case 'finish':
      return { ...command, ...(await offloadFinish(tenantId, command, blobs, put)) };
    case 'release':
      return command;
  }
}

async function offloadFinish(
  tenantId: string,
  command: FinishCommand,
  blobs: BlobStore,
  put: Put,
): Promise<FinishCommand> {
  const closing = { type: 'completion', payload: { ...command.completion } } as EventInput;
  const completion = (await previewFields(closing, FIELD_MAX_CHARS, put)).payload as Completion;
  const ended = { ...(await shortText(command, put)), completion };
  return offload(tenantId, { ...command, ...ended }, blobs, jsonBytes(ended));
}

async function shortText({ text, textBlob }: SaidText, put: Put): Promise<SaidText> {
  if (textBlob) return { text, textBlob };
  if (text.length <= FIELD_MAX_CHARS && jsonBytes(text) <= TEXT_MAX_BYTES) return { text };
  return { text: preview(text, FIELD_MAX_CHARS), textBlob: await blobOf(text, put) };
}
