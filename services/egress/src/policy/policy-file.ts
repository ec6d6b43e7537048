import { readFile } from 'node:fs/promises';
import type { EgressCaller, EgressPolicy } from '@margay/contracts';
import { InvalidArgumentError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import { EgressSettings, NOTHING } from './egress-policy';
import { judge, type Target, type Verdict } from './judge';

/** Where the rules come from. */
export interface EgressPolicies {
  readonly settings: EgressSettings;
  policyOf(tenantId: string): EgressPolicy;
  judge(target: Target, caller: EgressCaller): Verdict;
  /** Called after every change. */
  onChange(listener: () => void): void;
}

/**
 * The operator's JSON file. A change acts within seconds; one that is faulty changes nothing and is reported; without the
 * file everything is refused.
 */
export class PolicyFile implements EgressPolicies {
  settings: EgressSettings = EgressSettings.parse({});
  /** Without a file nothing is allowed, and that is known. */
  readonly isKnown = true;
  /** What is wrong with the file as it is now. */
  fault: string | undefined;
  private text: string | undefined;
  private readonly listeners: (() => void)[] = [];
  private timer: NodeJS.Timeout | undefined;

  private constructor(
    private readonly file: string,
    private readonly logger: Logger,
  ) {}

  /** @throws InvalidArgumentError `egress_policy` for a faulty file; one that is missing may come later. */
  static async open(file: string, logger: Logger): Promise<PolicyFile> {
    const policies = new PolicyFile(file, logger);
    await policies.refresh();
    if (policies.fault !== undefined && policies.text !== undefined)
      throw new InvalidArgumentError('egress_policy', policies.fault);
    return policies;
  }

  policyOf(tenantId: string): EgressPolicy {
    const { tenants, policy } = this.settings;
    return (Object.hasOwn(tenants, tenantId) ? tenants[tenantId] : policy) ?? NOTHING;
  }

  judge(target: Target, caller: EgressCaller): Verdict {
    return judge(this.policyOf(caller.tenantId), this.settings.maxMode, target, caller);
  }

  onChange(listener: () => void): void {
    this.listeners.push(listener);
  }

  watch(everyMs: number): void {
    const look = (): void => {
      this.refresh().catch((error: unknown) => this.logger.error({ err: error }, 'the egress policy cannot be used'));
    };
    this.timer = setInterval(look, everyMs);
    this.timer.unref();
  }

  close(): void {
    clearInterval(this.timer);
  }

  /** Reads the file; the content tells a change, since times and links of mounted files are not to be relied on. */
  async refresh(): Promise<void> {
    const text = await readFile(this.file, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return undefined;
      throw error;
    });
    if (text === this.text && (text !== undefined || this.fault !== undefined)) return;
    this.text = text;
    if (text === undefined)
      return this.use(EgressSettings.parse({}), `There is no file ${this.file}: nothing is allowed.`);
    const read = parse(text);
    if ('settings' in read) return this.use(read.settings, undefined);
    this.fault = `The file ${this.file} is faulty, what was read before holds: ${read.fault}`;
    this.logger.error({ file: this.file }, this.fault);
  }

  private use(settings: EgressSettings, fault: string | undefined): void {
    this.settings = settings;
    this.fault = fault;
    if (fault === undefined) this.logger.info({ file: this.file, maxMode: settings.maxMode }, 'egress policy read');
    else this.logger.warn({ file: this.file }, fault);
    for (const listener of this.listeners) listener();
  }
}

function parse(text: string): { settings: EgressSettings } | { fault: string } {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    return { fault: 'it is not JSON.' };
  }
  const parsed = EgressSettings.safeParse(json);
  if (parsed.success) return { settings: parsed.data };
  const faults = parsed.error.issues.map((issue) => `${issue.path.join('.') || 'the file'}: ${issue.message}`);
  return { fault: faults.slice(0, 5).join('; ') };
}
