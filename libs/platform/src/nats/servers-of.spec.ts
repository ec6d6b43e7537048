import { serversOf } from './nats-bus';

describe('addresses of NATS servers', () => {
  it.each([
    ['nats://127.0.0.1:4222', { servers: ['nats://127.0.0.1:4222'] }],
    ['127.0.0.1:4222', { servers: ['nats://127.0.0.1:4222'] }],
    ['nats://a:1,nats://b:2', { servers: ['nats://a:1', 'nats://b:2'] }],
    ['tls://margay:p%40ss@broker:4222', { servers: ['tls://broker:4222'], user: 'margay', pass: 'p@ss' }],
    ['nats://u:p@a:1,nats://u:p@b:2', { servers: ['nats://a:1', 'nats://b:2'], user: 'u', pass: 'p' }],
    ['nats://secret-token@a:1', { servers: ['nats://a:1'], token: 'secret-token' }],
  ])('%s', (url, expected) => {
    expect(serversOf(url)).toEqual(expected);
  });
});
