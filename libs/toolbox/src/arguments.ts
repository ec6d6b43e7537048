import { z } from 'zod';
import { ToolFailure } from './outcome';

/** A whole number or, for anything else, the fallback (ext §1.3: a bad offset is 0). */
export const lenientInteger = (fallback: number): z.ZodType<number> =>
  z
    .unknown()
    .optional()
    .transform((value) => {
      const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
      return typeof number === 'number' && Number.isFinite(number) ? Math.trunc(number) : fallback;
    });

/** Checks arguments against a tool's schema; the failure names each field so the model can correct itself. */
export function parseArguments<T>(toolId: string, schema: z.ZodType<T>, args: unknown): T {
  const parsed = schema.safeParse(args);
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.map((issue) => `${issue.path.join('.') || 'arguments'}: ${issue.message}`);
  throw new ToolFailure(`Invalid arguments for ${toolId}: ${issues.join('; ')}`);
}
