export { BLOB_SETTINGS, BlobConfig, s3SettingsOf, type S3Settings } from './blob-config';
export { ObjectStore, type Chunks } from './object-store';
export { openObjects } from './open-objects';
export { S3Objects } from './s3-objects';
export { isObjectMissing } from './s3-errors';
export { StoredFiles, type FilePlace, type NewFile, type StoredFile, type StoredFilesOptions } from './stored-files';
export { UnfinishedFiles } from './unfinished-files';
