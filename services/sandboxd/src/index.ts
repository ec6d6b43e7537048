export { readConfig, type SandboxdConfig } from './config';
export { GrantVerifier, type GrantVerifierOptions } from './grants/grant-verifier';
export { Sandbox, type Isolation, type SandboxOptions } from './sandbox';
export { startSandboxd, type RunningSandboxd } from './sandboxd';
