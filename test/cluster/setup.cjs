// Jest's globalSetup wants a default export, which TypeScript here does not write.
const { probeFeatures } = require('./features');

module.exports = () => probeFeatures();
