/** Generation of the store and epoch of the session. */
export interface Epoch {
  generation: number;
  epoch: number;
}

export const FIRST_EPOCH: Epoch = { generation: 0, epoch: 0 };

export function isLowerEpoch(a: Epoch, b: Epoch): boolean {
  return a.generation === b.generation ? a.epoch < b.epoch : a.generation < b.generation;
}
