import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:tls';

/** What a server shows that made its certificate itself, in PEM. */
export async function certificateOf(address: string): Promise<string> {
  const [host = '', port] = address.split(':');
  const socket = connect({ host, port: Number(port), ALPNProtocols: ['h2'], rejectUnauthorized: false });
  try {
    await once(socket, 'secureConnect');
    return new X509Certificate(socket.getPeerX509Certificate()?.raw ?? Buffer.alloc(0)).toString();
  } finally {
    socket.destroy();
  }
}
