import { isText, storedName, typeOf } from './attachment-types';

describe('the type of an attached file', () => {
  it.each([
    ['Report.PDF', '', 'application/pdf'],
    ['a.docx', 'application/octet-stream', 'application/vnd.openxmlformats-officedocument.wordprocessingml.document'],
    ['a.json', 'text/plain', 'application/json'],
    ['Makefile', 'text/x-makefile; charset=utf-8', 'text/x-makefile'],
    ['photo', 'image/png', 'image/png'],
  ])('of %s, said to be %p, is %s', (name, declared, type) => expect(typeOf(name, declared)).toBe(type));

  it.each([
    ['a.exe', 'application/x-msdownload'],
    ['noname', ''],
    ['a.constructor', ''],
    ['a', 'text/'],
    ['a', 'text/html\r\nx: y'],
  ])('of %s, said to be %p, is none', (name, declared) =>
    expect(() => typeOf(name, declared)).toThrow(expect.objectContaining({ reason: 'unsupported_type' })),
  );

  it('is text only where the bytes are', () => {
    expect(isText('text/plain', Buffer.from('žluť'))).toBe(true);
    expect(isText('application/json', Buffer.from('{}'))).toBe(true);
    expect(isText('text/plain', Buffer.from([0xff, 0xfe, 0x41]))).toBe(false);
    expect(isText('text/plain', Buffer.from('a\0b'))).toBe(false);
    expect(isText('application/pdf', Buffer.from('text'))).toBe(false);
  });
});

describe('the name of an attached file in a sandbox', () => {
  const id = '0123456789abcdef0123456789abcdef';

  it.each([
    ['notes.md', '01234567-notes.md'],
    ['../../etc/passwd', '01234567-passwd'],
    ['.bashrc', '01234567-bashrc'],
    ['-rf .txt', '01234567-rf_.txt'],
    ['a b; rm $x.c!sv', '01234567-a_b_rm_x.csv'],
    ['žluť.txt', '01234567-žluť.txt'],
    ['...', '01234567-file.'],
    [`${'x'.repeat(300)}.txt`, `01234567-${'x'.repeat(48)}.txt`],
    ['a\nb\0.txt', '01234567-a_b_.txt'],
  ])('of %j is %s', (name, stored) => expect(storedName(id, name)).toBe(stored));
});
