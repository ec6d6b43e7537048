import path from 'node:path';
import { InvalidArgumentError } from '@margay/errors';

const OFFICE = 'application/vnd.openxmlformats-officedocument';
const OPEN_DOCUMENT = 'application/vnd.oasis.opendocument';

/** What may be attached, by the end of its name. */
const BY_EXTENSION: Record<string, string> = {
  pdf: 'application/pdf',
  doc: 'application/msword',
  docx: `${OFFICE}.wordprocessingml.document`,
  xls: 'application/vnd.ms-excel',
  xlsx: `${OFFICE}.spreadsheetml.sheet`,
  ppt: 'application/vnd.ms-powerpoint',
  pptx: `${OFFICE}.presentationml.presentation`,
  odt: `${OPEN_DOCUMENT}.text`,
  ods: `${OPEN_DOCUMENT}.spreadsheet`,
  odp: `${OPEN_DOCUMENT}.presentation`,
  csv: 'text/csv',
  tsv: 'text/tab-separated-values',
  txt: 'text/plain',
  log: 'text/plain',
  md: 'text/markdown',
  markdown: 'text/markdown',
  json: 'application/json',
  xml: 'application/xml',
  yaml: 'application/yaml',
  yml: 'application/yaml',
  html: 'text/html',
  htm: 'text/html',
  png: 'image/png',
  jpg: 'image/jpeg',
  jpeg: 'image/jpeg',
  gif: 'image/gif',
  webp: 'image/webp',
};
const KNOWN = new Set(Object.values(BY_EXTENSION));
const TEXTS = new Set(['application/json', 'application/xml', 'application/yaml']);

/** The type that a file is taken for. @throws InvalidArgumentError `unsupported_type` */
export function typeOf(filename: string, declared: string): string {
  const extension = path.extname(filename).slice(1).toLowerCase();
  const byName = Object.hasOwn(BY_EXTENSION, extension) ? BY_EXTENSION[extension] : undefined;
  const said = declared.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  const type = byName ?? (KNOWN.has(said) || /^text\/[\w.+-]{1,64}$/.test(said) ? said : undefined);
  if (type !== undefined) return type;
  throw new InvalidArgumentError(
    'unsupported_type',
    `'${shown(filename)}' has a type that cannot be attached; PDF, Office documents, CSV, text, Markdown, JSON, XML, YAML and HTML can.`,
  );
}

export function isImage(type: string): boolean {
  return type.startsWith('image/');
}

/** Whether these bytes are text, as their type says. */
export function isText(type: string, content: Uint8Array): boolean {
  if (!type.startsWith('text/') && !TEXTS.has(type)) return false;
  try {
    return !new TextDecoder('utf-8', { fatal: true }).decode(content).includes('\0');
  } catch {
    return false; // of another encoding
  }
}

/** A name that is safe in any folder and in a shell, and differs from those of other uploads. */
export function storedName(id: string, filename: string): string {
  const extension = path
    .extname(filename)
    .replace(/[^\w.]/g, '')
    .slice(0, 16);
  const stem = path.basename(filename, path.extname(filename)).normalize('NFKC');
  const safe = stem.replace(/[^\p{L}\p{N}._-]+/gu, '_').replace(/^[.-]+/, '');
  const short = [...safe].slice(0, 48).join('') || 'file';
  return `${id.slice(0, 8)}-${short}${extension}`;
}

/** A name as errors and lists show it. */
export function shown(filename: string): string {
  // eslint-disable-next-line no-control-regex -- these are what is replaced
  return filename.replace(/[\u0000-\u001f\u007f]/g, '?').slice(0, 255);
}
