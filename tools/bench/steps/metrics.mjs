/** Inserts of the session service so far, from its own histogram: `{ count, seconds, meanSince(before) }`, ms. */
export async function insertsOf(platform) {
  const name = platform.processes.find(({ services }) => services.includes('session')).name;
  const text = await (await fetch(`${platform.managementUrl(name)}/metrics`)).text();
  const valueOf = (suffix) =>
    Number(new RegExp(`^margay_commit_duration_seconds_${suffix}(?:\\{[^}]*\\})? (\\S+)`, 'm').exec(text)?.[1] ?? 0);
  const now = { count: valueOf('count'), seconds: valueOf('sum') };
  return { ...now, meanSince: (before) => ((now.seconds - before.seconds) / (now.count - before.count)) * 1000 };
}
