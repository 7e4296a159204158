// Opens the profile of the example `heap` in the Firefox Profiler's own loader, and checks its views
// of memory.
//
//   target/readers/node_modules/.bin/node .ci/check-heap.mjs PROFILE.json

import { openProfile } from "./loader.mjs";

const [file, ...rest] = process.argv.slice(2);
if (!file || rest.length) {
  console.error("usage: check-heap.mjs PROFILE.json");
  process.exit(2);
}

let failed = 0;
function check(what, ok, found) {
  if (!ok) failed++;
  console.log(ok ? `ok ${what}` : `FAILED: expected ${what}, got ${found}`);
}

const { querier, profile, complaints } = await openProfile(file);
const main = profile.threads.findIndex((thread) => thread.name === "GeckoMain");
const bytes = profile.threads[main]?.nativeAllocations?.length ?? 0;
check("allocations on the main thread", bytes > 1000, bytes);

// The functions of the example in a view of memory: [name, share of all bytes in percent].
async function view(callTreeSummaryStrategy) {
  querier._store.dispatch({ type: "CHANGE_CALL_TREE_SUMMARY_STRATEGY", callTreeSummaryStrategy });
  const { functions } = await querier.threadFunctions(`t-${main}`, undefined, true);
  const total = Math.max(...functions.map(({ totalSamples }) => Math.abs(totalSamples)));
  return new Map(functions.filter(({ name }) => name.startsWith("heap::")).map(({ name, totalSamples }) => [name, (100 * totalSamples) / total]));
}

const retained = await view("native-retained-allocations");
const shown = (map) => [...map].map(([name, share]) => `${name} ${share.toFixed(1)} %`).join(", ");
check("nearly all retained memory in heap::remember_answer", retained.get("heap::remember_answer") > 95, shown(retained));
const allocated = await view("native-allocations");
check("most allocated memory in heap::parse_and_sum", allocated.get("heap::parse_and_sum") > 60 && allocated.get("heap::remember_answer") < 30, shown(allocated));
for (const strategy of ["native-deallocations-memory", "native-deallocations-sites"]) {
  const freed = await view(strategy);
  check(`heap::parse_and_sum in ${strategy}`, freed.get("heap::parse_and_sum") < -50, shown(freed));
}

const malloc = profile.counters.find(({ name }) => name === "malloc");
check("the counter malloc", malloc?.samples.count.length > 10, malloc?.samples.count.length);
check("no complaint of the loader", !complaints.length, complaints.join("; "));
console.log(failed ? `${failed} failed` : "all passed");
process.exitCode = failed ? 1 : 0;
