import {
  CODES,
  codeFromGrpc,
  errorOf,
  httpStatus,
  isMargayError,
  MargayError,
  NotFoundError,
  type ErrorCode,
} from './index';

const codes = Object.keys(CODES) as ErrorCode[];

describe('the table of codes', () => {
  it('gives each code a gRPC number of its own, which leads back to it', () => {
    expect(new Set(codes.map((code) => CODES[code].grpc)).size).toBe(codes.length);
    expect(codes.map((code) => codeFromGrpc(CODES[code].grpc))).toEqual(codes);
  });

  it('takes a number that Margay never sends for INTERNAL', () => {
    expect(codeFromGrpc(2)).toBe('INTERNAL');
  });

  it.each([
    ['FAILED_PRECONDITION', 'session_terminated', 410],
    ['INVALID_ARGUMENT', 'too_large', 413],
    ['INVALID_ARGUMENT', 'validation', 422],
    ['INVALID_ARGUMENT', 'anything_else', 400],
    ['NOT_FOUND', 'session_not_found', 404],
  ] as const)('answers %s %s over HTTP with %i', (code, reason, status) => {
    expect(httpStatus(code, reason)).toBe(status);
  });
});

describe('an error', () => {
  it('carries code, reason, message and cause, and says whether it may be repeated', () => {
    const cause = new Error('inside');
    const error = errorOf('UNAVAILABLE', 'session_busy', 'busy; try again', { cause, retryAfterMs: 50 });
    expect(error).toMatchObject({ code: 'UNAVAILABLE', reason: 'session_busy', message: 'busy; try again', cause });
    expect(error).toMatchObject({ retryable: true, httpStatus: 503, retryAfterMs: 50, name: 'UnavailableError' });
  });

  it.each(codes)('of code %s has a class of its own', (code) => {
    const error = errorOf(code, 'x', 'y');
    expect(error).toBeInstanceOf(MargayError);
    expect(error.constructor).not.toBe(MargayError);
    expect(error.code).toBe(code);
  });

  it('is recognised across copies of this package, and nothing else is', () => {
    const foreign = Object.assign(new Error('x'), { [Symbol.for('margay.error')]: true });
    expect([new NotFoundError('a', 'b'), foreign].map(isMargayError)).toEqual([true, true]);
    expect([new Error('x'), null, undefined, 'text', {}].map(isMargayError)).toEqual([
      false,
      false,
      false,
      false,
      false,
    ]);
  });
});
