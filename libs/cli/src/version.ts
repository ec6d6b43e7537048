/** Equal to the package's version, which a test keeps so. */
export const VERSION = '0.1.0';
