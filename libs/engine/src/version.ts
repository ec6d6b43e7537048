/** Pinned on each run at its acceptance. */
export const ENGINE_VERSION = '0.1.0';
