// Opens a profile in the processed format in the Firefox Profiler's own loader, and compares what
// the loader shows with a reference.
//
//   target/readers/node_modules/.bin/node .ci/check-processed.mjs FILE [REFERENCE]
//
// REFERENCE is another profile of the same recording, or a list of expected numbers:
//   { "threads": [{ "pid": "1", "tid": "2", "samples": 10, "markers": 3,
//     "functions": { "lib!name": { "self": 1, "total": 2 } } }] }
// Samples and markers have to be equal. Self and total samples of the 30 functions with the most
// samples may differ by one. A function of a library has the library's name before its own.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { gunzipSync } from "node:zlib";
import { openProfile } from "./loader.mjs";

// The loader replaces it while it opens a profile.
const { log } = console;
let passed = 0;
let failed = 0;
function check(what, ok, found) {
  if (ok) passed++;
  else failed++;
  log(ok ? `ok ${what}` : `FAILED: expected ${what}, got ${found}`);
}

function readJson(file) {
  const bytes = readFileSync(file);
  return JSON.parse(bytes[0] === 0x1f ? gunzipSync(bytes) : bytes);
}

// Returns what is wrong with the tables. The loader accepts most of it, and shows nonsense or
// nothing at all.
function mistakes({ meta, libs, shared, threads, counters }) {
  const found = [];
  const { stackTable, frameTable, funcTable, resourceTable, nativeSymbols, sources, stringArray } = shared;
  const lengths = (name, table) => {
    for (const [key, column] of Object.entries(table)) {
      if (Array.isArray(column) && column.length !== table.length) {
        found.push(`${name}.${key} has ${column.length} rows, and the table ${table.length}`);
      }
    }
  };
  // `none` is the value that stands for no row.
  const indices = (name, column, length, none) =>
    column.forEach((index, row) => {
      if (index !== none && !(Number.isInteger(index) && index >= 0 && index < length)) {
        found.push(`${name} of row ${row} is ${index}, which should be below ${length}`);
      }
    });
  for (const [name, table] of Object.entries(shared)) if (name !== "stringArray") lengths(name, table);
  indices("stack frame", stackTable.frame, frameTable.length);
  stackTable.prefixOffset.forEach((offset, row) => {
    if (!(offset >= 0 && offset <= row)) found.push(`prefixOffset of stack ${row} is ${offset}`);
  });
  indices("frame func", frameTable.func, funcTable.length);
  indices("frame lib", frameTable.lib, libs.length, -1);
  indices("frame category", frameTable.category, meta.categories.length, null);
  frameTable.subcategory.forEach((index, row) => {
    const category = meta.categories[frameTable.category[row]];
    if (category && !(index < category.subcategories.length)) found.push(`subcategory of frame ${row} is ${index}`);
  });
  indices("frame nativeSymbol", frameTable.nativeSymbol, nativeSymbols.length, null);
  indices("func name", funcTable.name, stringArray.length);
  indices("func resource", funcTable.resource, resourceTable.length, -1);
  indices("func source", funcTable.source, sources.length, null);
  indices("resource name", resourceTable.name, stringArray.length);
  indices("symbol name", nativeSymbols.name, stringArray.length);
  indices("symbol library", nativeSymbols.libIndex, libs.length);
  indices("source name", sources.filename, stringArray.length);
  frameTable.nativeSymbol.forEach((symbol, row) => {
    if (symbol === null) return;
    const whole = frameTable.lib[row] >= 0 && frameTable.address[row] >= 0 && funcTable.resource[frameTable.func[row]] >= 0;
    if (!whole) found.push(`frame ${row} has a native symbol without a library, an address or a resource`);
  });
  const schemas = new Map(meta.markerSchema.map((schema) => [schema.name, schema]));
  for (const { name, samples, markers, ...thread } of threads) {
    lengths(`samples of ${name}`, samples);
    lengths(`markers of ${name}`, markers);
    indices(`sample stack of ${name}`, samples.stack, stackTable.length, null);
    if (samples.timeDeltas.some((delta, row) => row > 0 && !(delta >= 0))) found.push(`samples of ${name} go back in time`);
    indices(`marker name of ${name}`, markers.name, stringArray.length);
    indices(`marker category of ${name}`, markers.category, meta.categories.length);
    for (const key of ["jsAllocations", "nativeAllocations"]) if (thread[key]) lengths(`${key} of ${name}`, thread[key]);
    for (const data of markers.data) {
      if (data?.cause) indices(`cause of ${data.type}`, [data.cause.stack], stackTable.length);
      for (const { key, format } of schemas.get(data?.type)?.fields ?? []) {
        if (/^unique-string$|flow-id$/.test(format) && key in data) indices(`${data.type}.${key}`, [data[key]], stringArray.length, null);
      }
    }
  }
  for (const counter of counters) {
    lengths(`counter ${counter.name}`, counter.samples);
    if (threads[counter.mainThreadIndex]?.pid !== counter.pid) found.push(`counter ${counter.name} has a thread of another process`);
  }
  return found;
}

// Returns the numbers of each thread, as the loader shows them.
async function numbers({ querier, profile }) {
  const threads = [];
  for (const [index, thread] of profile.threads.entries()) {
    const { pid, tid, samples, markers, jsAllocations, nativeAllocations } = thread;
    const functions = {};
    // On a thread without samples, the loader counts the bytes of allocations instead.
    const list = samples.length ? (await querier.threadFunctions(`t-${index}`, undefined, true)).functions : [];
    for (const { nameWithLibrary: name, selfSamples: self, totalSamples: total } of list) {
      const known = functions[name];
      // Functions of one name may contain each other, so their totals cannot be added.
      functions[name] = known ? { self: known.self + self } : { self, total };
    }
    const allocations = (jsAllocations?.length ?? 0) + (nativeAllocations?.length ?? 0);
    threads.push({ name: thread.name, pid: String(pid), tid: String(tid), samples: samples.length, markers: markers.length + allocations, functions });
  }
  return threads;
}

function compare(threads, expected) {
  check(`${expected.length} threads`, threads.length === expected.length, threads.length);
  for (const wanted of expected) {
    const thread = threads.find(({ pid, tid }) => pid === wanted.pid && tid === wanted.tid);
    const what = `thread ${wanted.name ?? ""} (process ${wanted.pid}, id ${wanted.tid})`;
    if (!thread) {
      check(what, false, threads.map(({ pid, tid }) => `${pid}/${tid}`).join(", "));
      continue;
    }
    for (const key of ["samples", "markers"]) {
      check(`${wanted[key]} ${key} on ${what}`, thread[key] === wanted[key], thread[key]);
    }
    const most = ([, { self, total }]) => Math.max(self, total ?? 0);
    const top = Object.entries(wanted.functions ?? {}).sort((a, b) => most(b) - most(a)).slice(0, 30);
    const near = (a, b) => a === undefined || b === undefined || Math.abs(a - b) <= 1;
    const differing = top.filter(([name, { self, total }]) => {
      const found = thread.functions[name];
      return !found || !near(found.self, self) || !near(found.total, total);
    });
    const shown = differing.slice(0, 3).map(([name, numbers]) => `${name} ${JSON.stringify(thread.functions[name])} and not ${JSON.stringify(numbers)}`);
    check(`the self and total samples of ${top.length} functions on ${what}`, !differing.length, shown.join("; "));
  }
}

// Opens the source view of functions whose file is in the profile.
async function checkSources({ querier, profile }) {
  const { funcTable, frameTable, sources, stringArray } = profile.shared;
  // The compiler gives some instructions a function but no line. The loader numbers such a line 0.
  const withLine = new Set(frameTable.func.filter((_, frame) => frameTable.line[frame] > 0));
  const withText = sources.content.filter((text) => text !== null).length;
  if (!withText) return;
  let shown = 0;
  for (const index of profile.threads.keys()) {
    if (shown >= 20 || !profile.threads[index].samples.length) continue;
    await querier.threadSelect(`t-${index}`);
    // The source view has no hits of idle samples, so functions with idle samples alone have none.
    const { functions } = await querier.threadFunctions();
    for (const { functionHandle, functionIndex } of functions.slice(0, 200)) {
      const text = sources.content[funcTable.source[functionIndex]] ?? null;
      if (text === null || !withLine.has(functionIndex) || shown >= 20) continue;
      const { srcAnnotation } = await querier.functionAnnotate(functionHandle, "src", undefined, "0");
      const name = stringArray[funcTable.name[functionIndex]];
      const lines = srcAnnotation?.lines ?? [];
      const expected = text.split("\n");
      const right = lines.length > 0 && lines.every(({ lineNumber, sourceText, totalSamples }) => totalSamples > 0 && sourceText === (expected[lineNumber - 1] ?? null));
      check(`the source view of ${name} to have hits on its lines`, right, JSON.stringify(lines.slice(0, 3)));
      shown++;
    }
  }
  if (!shown) log(`note: ${withText} files have their text, but no sampled function is in one`);
}

const [file, reference, ...rest] = process.argv.slice(2);
if (!file || rest.length) {
  console.error("usage: check-processed.mjs FILE [REFERENCE]");
  process.exit(2);
}
async function checkProfile() {
  const found = [...new Set(mistakes(readJson(file)))];
  check("tables of equal lengths, with indices in range", !found.length, `${found.slice(0, 5).join("; ")} (${found.length} mistakes)`);
  // The loader never ends on some of them, such as a wrong prefixOffset.
  if (found.length) return;
  const viewer = await openProfile(resolve(file));
  check(`${file} to load without complaints`, !viewer.complaints.length, viewer.complaints.slice(0, 3).join("; "));
  const threads = await numbers(viewer);
  check("threads", threads.length > 0, "none");
  await checkSources(viewer);
  // A counter without a track is not shown.
  const trackOf = (counter) => viewer.tracks.some((track) => track.type === "counter" && track.counterIndex === counter);
  const hidden = (viewer.profile.counters ?? []).filter((_, index) => !trackOf(index)).map(({ name }) => name);
  check("a track for each counter", !hidden.length, `none for ${hidden.join(", ")}`);
  if (reference) {
    const expected = readJson(reference);
    compare(threads, expected.meta ? await numbers(await openProfile(resolve(reference))) : expected.threads);
  }
}

try {
  await checkProfile();
} catch (error) {
  check("a profile that can be read to its end", false, error.message);
}
log(`${passed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
