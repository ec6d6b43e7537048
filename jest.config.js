// Jest 30 does not `require` ES modules, so swc compiles the packages that are ESM; the list is read from the installed tree.
const fs = require('node:fs');
const path = require('node:path');
const tree = JSON.parse(fs.readFileSync(path.join(__dirname, 'node_modules/.package-lock.json'), 'utf8')).packages;
const esm = new Set();
for (const [dir, entry] of Object.entries(tree)) {
  if (entry.link || !dir.includes('node_modules/')) continue;
  try {
    if (JSON.parse(fs.readFileSync(path.join(__dirname, dir, 'package.json'), 'utf8')).type === 'module')
      esm.add(dir.slice(dir.lastIndexOf('node_modules/') + 13));
  } catch {
    /* a package of another platform */
  }
}
const names = [...esm].map((n) => n.replace(/[.+]/g, '\\$&')).join('|');
const swc = (jsc) => [
  '@swc/jest',
  {
    swcrc: false,
    sourceMaps: 'inline',
    module: { type: 'commonjs' },
    jsc: { target: 'es2024', keepClassNames: true, ...jsc },
  },
];
module.exports = {
  rootDir: __dirname,
  testEnvironment: 'node',
  watchman: false,
  // No test is about how fast this machine is.
  testTimeout: 120_000,
  maxWorkers: 2,
  workerIdleMemoryLimit: '512MB',
  testMatch: ['<rootDir>/{libs,services,tools,test}/**/*.{spec,int-spec,e2e-spec}.ts'],
  testPathIgnorePatterns: ['/dist/', '/node_modules/'],
  modulePathIgnorePatterns: ['/dist/', '/out-tsc/'],
  testEnvironmentOptions: { customExportConditions: ['@margay/source', 'require', 'node', 'default'] },
  transform: {
    '/node_modules/.+\\.m?js$': swc({ parser: { syntax: 'ecmascript' } }),
    '\\.[cm]?tsx?$': swc({
      parser: { syntax: 'typescript', decorators: true },
      transform: { legacyDecorator: true, decoratorMetadata: true, useDefineForClassFields: false },
    }),
  },
  transformIgnorePatterns: [`/node_modules/(?!(?:.*/node_modules/)?(?:${names})/)`],
  moduleFileExtensions: ['ts', 'js', 'mjs', 'cjs', 'json', 'node'],
};
