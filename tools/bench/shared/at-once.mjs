/** Does `work(index)` for `count` indexes, so many at once. */
export async function atOnce(concurrency, count, work) {
  let next = 0;
  const worker = async () => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
}
