/** Version of this build; a test keeps it equal to the root package.json. */
export const VERSION = '0.1.0';
