import type { Server, ServerUnaryCall, ServerWritableStream, sendUnaryData } from '@grpc/grpc-js';
import { contentPb, type SandboxGrant } from '@margay/contracts';
import { errorOf } from '@margay/errors';
import type { Sandbox } from '../sandbox';
import { toServiceError } from '../service-error';

type Place = ServerUnaryCall<contentPb.PlaceRequest, contentPb.PlaceResponse>;
type Bring = ServerWritableStream<contentPb.BringRequest, contentPb.BringResponse>;
type GrantOf = (call: Place | Bring) => Promise<SandboxGrant>;

const { fullName, methods } = contentPb.ContentDefinition;

/** Adds the service of the workspace's content to the daemon's server. */
export function addContent(server: Server, sandbox: Sandbox, grantOf: GrantOf): void {
  server.addService(
    { place: codec(methods.place), bring: codec(methods.bring) },
    {
      place: (call: Place, callback: sendUnaryData<contentPb.PlaceResponse>) => {
        grantOf(call)
          .then((grant) => sandbox.placeContent(call.request, grant))
          .then(
            (response) => callback(null, response),
            (error: unknown) => callback(toServiceError(error)),
          );
      },
      bring: (call: Bring) => void bring(call, sandbox, grantOf),
    },
  );
}

async function bring(call: Bring, sandbox: Sandbox, grantOf: GrantOf): Promise<void> {
  const left = new AbortController();
  call.on('cancelled', () => left.abort(errorOf('CANCELLED', 'cancelled', 'The caller left.')));
  try {
    const grant = await grantOf(call);
    const tell = (doing: string) => void call.write({ message: { $case: 'doing', value: doing } });
    const value = await sandbox.bringContent(call.request, grant, { signal: left.signal, tell });
    call.write({ message: { $case: 'end', value } });
    call.end();
  } catch (error) {
    call.emit('error', toServiceError(error));
  }
}

interface Codec<T> {
  encode(message: T): { finish(): Uint8Array };
  decode(bytes: Uint8Array): T;
}

function codec<Q, S>(method: { name: string; requestType: Codec<Q>; responseType: Codec<S>; responseStream: boolean }) {
  const { name, requestType, responseType, responseStream } = method;
  return {
    path: `/${fullName}/${name}`,
    requestStream: false,
    responseStream,
    requestSerialize: (message: Q) => Buffer.from(requestType.encode(message).finish()),
    requestDeserialize: (bytes: Buffer) => requestType.decode(bytes),
    responseSerialize: (message: S) => Buffer.from(responseType.encode(message).finish()),
    responseDeserialize: (bytes: Buffer) => responseType.decode(bytes),
  };
}
