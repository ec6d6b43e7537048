/** Receives one line for the person who waits; the launcher itself never prints. */
export type Progress = (line: string) => void;

export const noProgress: Progress = () => undefined;
