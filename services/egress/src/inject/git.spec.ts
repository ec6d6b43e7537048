import { isPush, repositoryOf } from './git';

describe('requests of git', () => {
  it.each([
    '/team/site.git/git-receive-pack',
    '/team/site.git/info/refs?service=git-receive-pack',
    '/team/site.git/info/refs?service=git-upload-pack&service=git-receive-pack',
    '/team/site.git/git%2Dreceive-pack',
    '/team/site.git/%67it%252Dreceive%252dpack',
    '/team/site.git/info/refs?service=git-Receive-Pack',
  ])('push by %s', (resource) => expect(isPush(resource)).toBe(true));

  it.each(['/team/site.git/info/refs?service=git-upload-pack', '/team/site.git/git-upload-pack', '/team/receive'])(
    'do not push by %s',
    (resource) => expect(isPush(resource)).toBe(false),
  );

  it.each([
    ['/team/site.git/info/refs', 'team/site'],
    ['/team/site/git-upload-pack', 'team/site'],
    ['/team/site.git/info/lfs/objects/batch', 'team/site'],
    ['/team/site', 'team/site'],
    // Servers differ in where these lead, so no account of a part of the host is for them.
    ['/team/..%2fother/info/refs', ''],
    ['/team/%2E%2E;/other/info/refs', ''],
    ['/team//other', ''],
  ])('by %s are about a repository', (path, repository) => expect(repositoryOf(path)).toBe(repository));
});
