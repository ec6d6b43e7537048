const OTHER = 'other';

/** Keeps a label that comes from outside from growing without end: after so many values all new ones are `other`. */
export class LabelLimit {
  private readonly known = new Set<string>();

  constructor(private readonly max: number) {}

  of(value: string): string {
    if (this.known.has(value)) return value;
    if (this.known.size >= this.max) return OTHER;
    this.known.add(value);
    return value;
  }
}
