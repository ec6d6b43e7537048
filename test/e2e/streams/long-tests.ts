/** The whole of what hurts, not the short form that every run of the tests takes: minutes instead of seconds. */
export const isLong = process.env['MARGAY_TEST_LONG'] === '1';
