// What is made from values.yaml: values.schema.json and README.md of the chart; and the dashboards.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { format, resolveConfig } from 'prettier';
import { root } from '../prepare.mjs';
import { dashboards } from './dashboards.mjs';
import { readValues, schemaOf, tableOf } from './values-file.mjs';

export const chart = join(root, 'charts/margay');

/** @returns file name in the chart → text */
export async function generated() {
  const entries = readValues(await readFile(join(chart, 'values.yaml'), 'utf8'));
  const introduction = await readFile(new URL('readme-introduction.md', import.meta.url), 'utf8');
  const table = ['| key | default | meaning |', '| --- | --- | --- |', ...tableOf(entries)].join('\n');
  const files = {
    'values.schema.json': JSON.stringify(schemaOf(entries)),
    // Each line as long as it is, so that a change of one value shows as one.
    'README.md': `${introduction}\n<!-- prettier-ignore-start -->\n\n${table}\n\n<!-- prettier-ignore-end -->\n`,
    ...Object.fromEntries(
      Object.entries(dashboards()).map(([name, board]) => [`dashboards/${name}.json`, JSON.stringify(board)]),
    ),
  };
  const formatted = Object.entries(files).map(async ([name, text]) => {
    const filepath = join(chart, name);
    return [name, await format(text, { ...(await resolveConfig(filepath)), filepath })];
  });
  return Object.fromEntries(await Promise.all(formatted));
}
