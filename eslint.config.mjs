// The layers of the project as lint rules: who may import whom, and which outside packages each layer stays free of.
import nx from '@nx/eslint-plugin';
import prettier from 'eslint-config-prettier';
import tseslint from 'typescript-eslint';

const DRIVERS = [
  '@nestjs/*',
  'mongoose',
  'mongodb',
  'nats',
  '@grpc/*',
  'fastify',
  '@fastify/*',
  '@kubernetes/*',
  '@aws-sdk/*',
];
const NEST = ['@nestjs/*', 'mongoose', 'mongodb', 'nats', 'fastify', '@fastify/*'];
const LIBRARIES = ['errors', 'contracts', 'log', 'engine', 'providers', 'toolbox', 'kube', 'platform', 'client'];
/** Pure packages of the engine: no input or output of their own. */
const ENGINE_PACKAGES = [
  'zod',
  'ajv',
  'ajv/dist/2020',
  'picomatch',
  'diff',
  'yaml',
  'gpt-tokenizer',
  'fastest-levenshtein',
];
const TERMINAL_PACKAGES = ['commander', 'picocolors', 'wrap-ansi', 'string-width', 'fuzzysort', 'fastest-levenshtein'];

/** One line per layer. `allowed` names all outside packages it may import, `banned` those it must not. */
const LAYERS = [
  { name: 'errors', imports: [], allowed: [] },
  { name: 'contracts', imports: ['errors'], allowed: ['zod', '@bufbuild/protobuf'] },
  { name: 'log', imports: ['errors', 'contracts'], allowed: ['zod'] },
  { name: 'engine', imports: ['errors', 'contracts', 'log'], allowed: ENGINE_PACKAGES },
  { name: 'providers', imports: ['errors', 'contracts', 'engine'], banned: DRIVERS },
  { name: 'kube', imports: ['errors', 'contracts', 'engine'], banned: NEST },
  { name: 'toolbox', imports: ['errors', 'contracts', 'engine'], banned: DRIVERS },
  { name: 'client', imports: ['errors', 'contracts'], allowed: ['zod', 'eventsource-parser'] },
  {
    name: 'cli',
    imports: ['errors', 'contracts', 'client'],
    allowed: ['zod', 'eventsource-parser', ...TERMINAL_PACKAGES],
  },
  { name: 'platform', imports: ['errors', 'contracts'], banned: [] },
  // Starts servers for laptops and tests; it speaks to them through their drivers to see that they are ready.
  { name: 'launcher', imports: ['errors', 'contracts', 'client'], banned: ['@nestjs/*', '@grpc/*'] },
  { name: 'service', imports: LIBRARIES, banned: [] },
  { name: 'composition', imports: [...LIBRARIES, 'service'], banned: [] },
  { name: 'testing', imports: [...LIBRARIES, 'launcher', 'cli', 'service', 'composition'], banned: [] },
  { name: 'workspace', imports: [...LIBRARIES, 'launcher', 'cli', 'service', 'composition', 'testing'], banned: [] },
];
/** What tests of every layer may use besides: fakes, real servers, and the log they prove things with. */
const FOR_TESTS = ['testing', 'launcher', 'errors', 'contracts', 'log', 'engine', 'platform'];

const tag = (name) => `type:${name}`;

function constraint({ name, imports, allowed, banned }, isTest) {
  return {
    sourceTag: tag(name),
    onlyDependOnLibsWithTags: (isTest ? [...new Set([...imports, ...FOR_TESTS])] : imports).map(tag),
    ...(allowed && !isTest && { allowedExternalImports: allowed }),
    ...(banned?.length && !isTest && { bannedExternalImports: banned }),
  };
}

const boundaries = (isTest) => [
  'error',
  {
    enforceBuildableLibDependency: false,
    banTransitiveDependencies: false,
    allow: [],
    // The graph does not tell tests from code: a test that uses fakes or real servers is no cycle.
    ignoredCircularDependencies: ['testing', 'launcher'].flatMap((helper) =>
      LAYERS.filter(({ name }) => name !== helper).map(({ name }) => [`tag:${tag(helper)}`, `tag:${tag(name)}`]),
    ),
    depConstraints: LAYERS.map((layer) => constraint(layer, isTest)),
  },
];

const NO_ENVIRONMENT = {
  object: 'process',
  property: 'env',
  message: 'Read the environment in a config.ts only and pass on what it says.',
};
const CLOCK = 'This layer has no clock of its own: take a Clock.';
const RANDOM = 'This layer makes no random numbers of its own: take an id source.';

/** ESLint's own rules about code that cannot be meant. */
const CORE_RULES = [
  ...[
    'for-direction',
    'no-async-promise-executor',
    'no-compare-neg-zero',
    'no-cond-assign',
    'no-constant-binary-expression',
  ],
  ...[
    'no-constant-condition',
    'no-control-regex',
    'no-debugger',
    'no-dupe-else-if',
    'no-duplicate-case',
    'no-empty-pattern',
  ],
  ...[
    'no-fallthrough',
    'no-irregular-whitespace',
    'no-loss-of-precision',
    'no-misleading-character-class',
    'no-self-assign',
  ],
  ...['no-sparse-arrays', 'no-unsafe-finally', 'no-unsafe-optional-chaining', 'no-unused-labels', 'no-useless-catch'],
  ...['use-isnan', 'valid-typeof'],
];

const SYNTAX = [{ selector: 'ExportDefaultDeclaration', message: 'Export by name.' }];

export default tseslint.config(
  {
    ignores: [
      '**/node_modules/',
      '**/dist/',
      '**/out-tsc/',
      '**/.nx/',
      'libs/contracts/src/gen/',
      'charts/',
      'k8s/',
      'coverage/',
    ],
  },
  ...tseslint.configs.recommended,
  {
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    plugins: { '@nx': nx },
    rules: {
      ...Object.fromEntries(CORE_RULES.map((rule) => [rule, 'error'])),
      eqeqeq: ['error', 'always', { null: 'ignore' }],
      'no-empty': ['error', { allowEmptyCatch: false }],
      'no-restricted-syntax': ['error', ...SYNTAX],
      '@typescript-eslint/no-unused-vars': [
        'error',
        {
          args: 'after-used',
          argsIgnorePattern: '^_',
          varsIgnorePattern: '^_',
          destructuredArrayIgnorePattern: '^_',
          ignoreRestSiblings: true,
        },
      ],
      '@typescript-eslint/ban-ts-comment': ['error', { 'ts-expect-error': true, minimumDescriptionLength: 10 }],
      '@typescript-eslint/consistent-type-imports': [
        'error',
        { fixStyle: 'inline-type-imports', disallowTypeAnnotations: false },
      ],
      '@typescript-eslint/no-empty-object-type': ['error', { allowInterfaces: 'with-single-extends' }],
    },
  },
  {
    files: ['{libs,services,test,tools}/**/*.ts'],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@nx/enforce-module-boundaries': boundaries(false),
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': [
        'error',
        { checksVoidReturn: { arguments: false, attributes: false } },
      ],
      '@typescript-eslint/await-thenable': 'error',
      '@typescript-eslint/only-throw-error': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
    },
  },
  {
    files: ['{libs,services}/**/*.ts'],
    rules: {
      'max-lines': ['error', { max: 300, skipBlankLines: true, skipComments: true }],
      'no-console': 'error',
      'no-restricted-properties': ['error', NO_ENVIRONMENT],
      'no-restricted-imports': [
        'error',
        {
          patterns: [
            {
              group: [
                '@margay/*/*',
                ...['mongo', 'calls', 'faults', 'certificates', 'files'].map((part) => `!@margay/platform/${part}`),
              ],
              message: 'Import a package by its name; it lists what is public.',
            },
          ],
        },
      ],
    },
  },
  {
    files: ['libs/{log,engine}/src/**/*.ts'],
    rules: {
      'no-restricted-properties': [
        'error',
        NO_ENVIRONMENT,
        { object: 'Date', property: 'now', message: CLOCK },
        { object: 'performance', property: 'now', message: CLOCK },
        { object: 'Math', property: 'random', message: RANDOM },
        { object: 'crypto', property: 'randomUUID', message: RANDOM },
        { object: 'AbortSignal', property: 'timeout', message: CLOCK },
      ],
      'no-restricted-globals': [
        'error',
        ...['setTimeout', 'setInterval', 'setImmediate', 'performance'].map((name) => ({
          name,
          message: CLOCK,
        })),
      ],
      'no-restricted-syntax': [
        'error',
        ...SYNTAX,
        { selector: 'NewExpression[callee.name="Date"][arguments.length=0]', message: CLOCK },
        {
          selector: 'ImportDeclaration[source.value=/^node:(timers|perf_hooks|fs|net|http|child_process)/]',
          message: 'This layer does no input or output.',
        },
      ],
    },
  },
  { files: ['libs/**/config.ts', 'services/**/config.ts'], rules: { 'no-restricted-properties': 'off' } },
  {
    files: [
      '**/*.{spec,int-spec,e2e-spec}.ts',
      '**/*.testing.ts',
      'services/*/src/spec/**/*.ts',
      'libs/testing/**/*.ts',
      'test/**/*.ts',
    ],
    rules: {
      '@nx/enforce-module-boundaries': boundaries(true),
      'max-lines': 'off',
      'no-control-regex': 'off',
      'no-restricted-properties': 'off',
      'no-restricted-globals': 'off',
      'no-restricted-syntax': ['error', ...SYNTAX],
    },
  },
  {
    // A command's output is its purpose.
    files: ['libs/cli/**/*.ts', 'libs/launcher/src/**/main.ts'],
    rules: { 'no-console': 'off' },
  },
  {
    files: ['**/*.{js,cjs}'],
    rules: { '@typescript-eslint/no-require-imports': 'off' },
  },
  { files: ['eslint.config.mjs'], rules: { 'no-restricted-syntax': 'off' } },
  prettier,
);
