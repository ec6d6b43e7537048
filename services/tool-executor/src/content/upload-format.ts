import type { UploadFormat } from '@margay/contracts';

const BY_NAME: readonly [RegExp, UploadFormat][] = [
  [/\.(tar\.gz|tgz)$/i, 'tar.gz'],
  [/\.(tar\.zst|tzst)$/i, 'tar.zst'],
  [/\.tar$/i, 'tar'],
  [/\.zip$/i, 'zip'],
];
const BY_BYTES: readonly [Buffer, number, UploadFormat][] = [
  [Buffer.from([0x1f, 0x8b]), 0, 'tar.gz'],
  [Buffer.from([0x28, 0xb5, 0x2f, 0xfd]), 0, 'tar.zst'],
  [Buffer.from('PK\x03\x04'), 0, 'zip'],
  [Buffer.from('ustar'), 257, 'tar'],
];

/** By its name; without one, by its first bytes. Other names are those of single files, also where these are archives. */
export function formatOf(filename: string, head: Uint8Array): UploadFormat {
  const named = BY_NAME.find(([end]) => end.test(filename))?.[1];
  if (named !== undefined || filename !== '') return named ?? 'file';
  const bytes = Buffer.from(head.buffer, head.byteOffset, head.byteLength);
  return BY_BYTES.find(([sign, at]) => bytes.subarray(at, at + sign.length).equals(sign))?.[2] ?? 'file';
}
