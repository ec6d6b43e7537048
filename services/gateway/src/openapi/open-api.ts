import type { Operation } from '../http/operation';
import { openApiDocument } from './document';

/** The document as it is served, made once. */
export class OpenApi {
  readonly text: string;

  constructor(operations: readonly Operation[]) {
    this.text = JSON.stringify(openApiDocument(operations));
  }
}
