#!/usr/bin/env node
// Linked by npm at install, when nothing is built yet; so it only finds the bundle.
const { existsSync } = require('node:fs');
const { join } = require('node:path');

const bundle = join(__dirname, '../../../dist/cli.cjs');
if (existsSync(bundle)) require(bundle);
else {
  process.stderr.write('error: margay is not built yet.\ntry: npm run build\n');
  process.exitCode = 1;
}
