import { parseRemote } from './remote';

const SHOP = { host: 'git.example.org', owner: 'acme', name: 'shop' };
const NONE = { host: '', owner: '', name: '' };

it.each([
  ['https://git.example.org/acme/shop.git', SHOP],
  ['https://user:secret@Git.Example.org:8443/acme/shop/', SHOP],
  ['ssh://git@git.example.org:22/acme/shop.git', SHOP],
  ['git@git.example.org:acme/shop.git', SHOP],
  ['git.example.org:acme/shop', SHOP],
  ['https://git.example.org/group/sub/shop.git', { ...SHOP, owner: 'group/sub' }],
  ['/srv/git/shop.git', NONE],
  ['file:///srv/acme/shop.git', NONE],
  ['../shop', NONE],
  ['https://git.example.org/shop.git', NONE],
  ['ext::sh -c evil/x% y/z', NONE],
  ['https://git.example.org/acme/%0a', NONE],
  ['', NONE],
])('the repository at %p', (address, remote) => expect(parseRemote(address)).toEqual(remote));
