/** Options of the command, with what is assumed where nothing is said. */
export const SIZE_OPTIONS = {
  runs: 200,
  streams: 1_000,
  'step-seconds': 10,
  'requests-per-second': 100,
  'runs-per-day': 20_000,
  'node-cpus': 16,
  'node-gib': 64,
  'node-pods': 110,
  'node-volumes': 25,
};
