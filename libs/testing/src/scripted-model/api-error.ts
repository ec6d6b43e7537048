/** An error as the real API words it; its body is `{ error: { message, type, param, code } }`. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly param: string | null = null,
    readonly code: string | null = null,
    readonly type: string = 'invalid_request_error',
  ) {
    super(message);
  }

  body(): { error: { message: string; type: string; param: string | null; code: string | null } } {
    return { error: { message: this.message, type: this.type, param: this.param, code: this.code } };
  }
}

/** A 400. */
export const invalid = (message: string, param: string | null = null, code: string | null = null): ApiError =>
  new ApiError(400, message, param, code);
