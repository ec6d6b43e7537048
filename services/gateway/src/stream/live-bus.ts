/** What a feed needs of the message bus. */
export interface LiveBus {
  subscribe(subject: string, listener: (data: Uint8Array, subject: string) => void): () => void;
  /** Resolves once subscriptions are in force, or soon if the bus is down. */
  flush(): Promise<void>;
}

export interface HubBus extends LiveBus {
  onReconnect(listener: () => void): () => void;
}
