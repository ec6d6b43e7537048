import { DEFAULT_CLASSES } from './classes';
import { podOf, type PodSettings } from './pod-spec';

const settings: PodSettings = {
  install: 'i1',
  image: 'local.test/sandbox:1',
  pullPolicy: 'Never',
  pullSecrets: [],
  trust: 'pem',
};
const proxy = { proxy: { ip: '127.0.0.9', port: 3128 }, proxyTokenOf: (id: string) => `token-of-${id}` };

function podOfClass(className: string, more: Partial<PodSettings>) {
  const kind = DEFAULT_CLASSES[className];
  if (!kind) throw new Error(`no class ${className}`);
  const pod = podOf(
    { sandboxId: 'b1', namespace: 'test', podName: 'mg-b1', className, class: kind },
    { ...settings, ...more },
  );
  const [container] = pod.spec?.containers ?? [];
  const url = container?.env?.find(({ name }) => name === 'MARGAY_SANDBOX_PROXY_URL')?.value;
  const authority = container?.env?.find(({ name }) => name === 'MARGAY_SANDBOX_CA')?.value;
  return { url, hosts: pod.spec?.hostAliases, ...(authority !== undefined && { authority }) };
}

describe('the way out of a pod', () => {
  it('is the proxy, found without name servers, with the name and the token of the sandbox', () => {
    expect(podOfClass('default', proxy)).toEqual({
      url: 'http://b1:token-of-b1@egress:3128',
      hosts: [{ ip: '127.0.0.9', hostnames: ['egress'] }],
    });
  });

  it('comes with the authority that its programs are to believe, where the proxy has one', () => {
    expect(podOfClass('default', { ...proxy, authority: 'pem' })).toMatchObject({ authority: 'pem' });
    for (const none of [
      podOfClass('default', { authority: 'pem' }),
      podOfClass('strict', { ...proxy, authority: 'pem' }),
    ])
      expect(none).not.toHaveProperty('authority');
  });

  it('is missing without a proxy, and in a class without egress', () => {
    for (const none of [podOfClass('default', {}), podOfClass('strict', proxy)])
      expect(none).toEqual({ url: undefined, hosts: undefined });
  });
});
