import type { LauncherConfig } from '../config';
import type { Progress } from '../progress';
import type { StoreEngine } from '../servers/data-folder';

export interface StoreBinary {
  kind: 'binary';
  engine: StoreEngine;
  version: string;
  /** Program and the arguments that come before the server's own. */
  command: readonly string[];
  source: StoreSource;
}

export type StoreSource =
  'path' | 'mongod-cache' | 'mongod-download' | 'secantus-cache' | 'secantus-cargo' | 'secantus-pypi';

/** What the finders of one kind of store need. */
export interface StoreContext {
  config: LauncherConfig;
  progress: Progress;
  prove(binary: StoreBinary): Promise<void>;
}
