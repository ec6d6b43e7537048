export type Chunks = AsyncIterable<Uint8Array>;

/** Bytes under keys, away from the document store. A key is written once; its bytes are seen whole or not at all. */
export abstract class ObjectStore {
  /** Where it is, for people; holds no secrets. */
  abstract readonly place: string;
  /** Stores what comes; where that breaks off, nothing. Holds some 24 MiB of it in memory, whatever its size. */
  abstract write(key: string, chunks: Chunks): Promise<void>;
  /** Bytes from `start` up to, but not including, `end`. Breaks off with NOT_FOUND `object_missing` where there are none. */
  abstract read(key: string, start: number, end: number): Chunks;
  /** Nothing happens where there is none. */
  abstract remove(key: string): Promise<void>;
  /** Also removes pieces that a writer left who ended in the midst of it. */
  abstract abandon(key: string): Promise<void>;
  abstract close(): void;
}
