// Opens a Gecko profile in the Firefox Profiler's own loader, and checks what the loader shows.
//
//   target/readers/node_modules/.bin/node .ci/check-profile.mjs PROFILE.json --expect EXPECT.json
//
// Keys of EXPECT.json, all optional; names between slashes and all keys of objects are regular
// expressions:
//   { "product": "demo", "threads": ["GeckoMain", "/^worker-/"], "hotFunctions": {"^worker-": ["demo::parse"]},
//     "scripts": {"^worker-": ["^judge$"]}, "markers": {"^worker-": ["request"]},
//     "longestMs": {"^worker-": {"Jank": [150, 250]}}, "categories": {"^worker-": ["Requests"]},
//     "counters": ["Process CPU"], "processes": ["parent", "worker 1"], "leftOut": ["worker 4"] }
// The items of hotFunctions and scripts are regular expressions, too. Scripts must be in the
// viewer's call tree for "JavaScript", and no other of the 40 hottest functions may be there. Idle
// samples do not count. If several threads have the same name, one of them has to match. Markers
// that the viewer derives, such as "Jank", count too. longestMs gives the range for the longest
// marker of a name. Categories are those of samples. Each of the processes has samples: here, idle
// ones count, too. The log of the gathering names those that were left out, and no other process was.

import { execFile } from "node:child_process";
import { readFileSync, rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const cli = join(root, "target/readers/node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js");
// Relative to the root, where profiler-cli runs: the path of a Unix socket may have at most 107
// bytes.
const sessionDir = join("target/readers", `session-${process.pid}`);
const session = "check";
const limitMs = 120_000;

let passed = 0;
let failed = 0;
function check(what, ok, found) {
  if (ok) passed++;
  else failed++;
  console.log(ok ? `ok ${what}` : `FAILED: expected ${what}, got ${found}`);
}

const list = (names) => [...new Set(names)].slice(0, 30).join(", ") || "none";

function reader(args, timeout = limitMs) {
  const command = `profiler-cli ${args.join(" ")}`;
  const env = {
    ...process.env,
    PROFILER_CLI_SESSION_DIR: sessionDir,
    // A check must not depend on a symbol server.
    PROFILER_CLI_NO_SYMBOLICATE: "1",
    PROFILER_CLI_LOAD_TIMEOUT_MS: String(limitMs - 10_000),
  };
  const options = { cwd: root, env, timeout, killSignal: "SIGKILL", maxBuffer: 1 << 30 };
  return new Promise((done, fail) => {
    execFile(process.execPath, [cli, ...args, "--session", session], options, (error, stdout, stderr) => {
      if (!error) done(stdout);
      else if (error.killed) fail(new Error(`no answer to "${command}" within ${timeout / 1000} s`));
      else fail(new Error(`"${command}" failed: ${(stderr.trim() || error.message).replace(/\s+/g, " ")}`));
    });
  });
}

const ask = async (...args) => JSON.parse(await reader([...args, "--json"]));

// Kills the daemon: it is a separate process, and a hanging daemon does not end with its client.
function endDaemon() {
  try {
    process.kill(JSON.parse(readFileSync(join(root, sessionDir, `${session}.json`))).pid, "SIGKILL");
  } catch {
    // The daemon has exited already.
  }
  rmSync(join(root, sessionDir), { recursive: true, force: true });
}

// Finds rows with an invalid index and fields without a schema, which the loader drops without a
// message.
function mistakes(profile, known = [], found = []) {
  const { meta } = profile;
  // The loader merges the schemas of all processes.
  const schemas = new Map([...known, ...allSchemas(profile)].map((schema) => [schema.name, schema]));
  for (const thread of profile.threads) {
    const { stringTable, frameTable, stackTable, samples, markers } = thread;
    const inRange = (what, index, length) => {
      if (index == null || (Number.isInteger(index) && index >= 0 && index < length)) return;
      found.push(`thread ${thread.name}: ${what} ${index}, which should be below ${length}`);
    };
    const column = (table, name, length, what) =>
      table.data.forEach((row, i) => inRange(`${what} of row ${i} is`, row[table.schema[name]], length ?? i));
    column(frameTable, "location", stringTable.length, "frame location");
    column(frameTable, "category", meta.categories.length, "frame category");
    column(stackTable, "frame", frameTable.data.length, "stack frame");
    column(stackTable, "prefix", null, "stack prefix");
    column(samples, "stack", stackTable.data.length, "sample stack");
    const time = (row) => row[samples.schema.time];
    const back = samples.data.findIndex((row, i) => i > 0 && !(time(row) >= time(samples.data[i - 1])));
    if (back > 0) {
      const [now, before] = [back, back - 1].map((i) => time(samples.data[i]));
      found.push(`thread ${thread.name}: sample ${back} at ${now} ms, after one at ${before} ms`);
    }
    column(markers, "name", stringTable.length, "marker name");
    column(markers, "category", meta.categories.length, "marker category");
    for (const row of markers.data) {
      const { type, stack, innerWindowID, ...fields } = row[markers.schema.data] ?? {};
      if (stack) column(stack.samples, "stack", stackTable.data.length, `stack of a ${type} marker`);
      // The viewer knows these two types without a schema.
      if (type === undefined || type === "Native allocation" || type === "JS allocation") continue;
      const schema = schemas.get(type);
      if (!schema) found.push(`thread ${thread.name}: a marker of the type ${type}, which has no schema`);
      for (const [key, value] of Object.entries(schema ? fields : {})) {
        const field = schema.data.find((field) => field.key === key);
        if (!field) found.push(`thread ${thread.name}: field ${key} of a ${type} marker, which its schema lacks`);
        else if (/^unique-string$|flow-id$/.test(field.format)) inRange(`${type}.${key} is`, value, stringTable.length);
      }
    }
  }
  for (const process of profile.processes) mistakes(process, [...schemas.values()], found);
  return found;
}

const allSchemas = (profile) => [...profile.meta.markerSchema, ...profile.processes.flatMap(allSchemas)];

// Loads a profile. profiler-cli waits only 500 ms for its daemon to start, which is too short on a busy
// machine, so that failure is tried again.
async function load(file, attempts = 10) {
  try {
    await reader(["load", file]);
  } catch (error) {
    if (attempts === 1 || !error.message.includes("did not become ready")) throw error;
    const pid = /kill (\d+)/.exec(error.message)?.[1];
    if (pid) process.kill(Number(pid), "SIGKILL");
    await load(file, attempts - 1);
  }
}

async function checkProfile(file, expect) {
  await load(file);
  check(`${file} to load`, true);

  const bytes = readFileSync(file);
  const profile = JSON.parse(bytes[0] === 0x1f ? gunzipSync(bytes) : bytes);
  const found = [...new Set(mistakes(profile))];
  const more = found.length > 5 ? `; and ${found.length - 5} more` : "";
  check("indexes in range, sample times in order and marker fields in their schemas", !found.length, found.slice(0, 5).join("; ") + more);

  const { product } = await ask("profile", "meta");
  if (expect.product !== undefined) check(`product ${expect.product}`, product === expect.product, product);

  const { processes } = await ask("profile", "info", "--all");
  const threads = processes.flatMap((process) => process.threads);
  const threadNames = list(threads.map((thread) => thread.name));
  for (const wanted of expect.threads ?? []) {
    const regex = /^\/(.*)\/$/.exec(wanted);
    const ok = threads.some(({ name }) => (regex ? new RegExp(regex[1]).test(name) : name === wanted));
    check(`thread ${wanted}`, ok, threadNames);
  }
  for (const thread of threads) {
    const at = ["--thread", thread.threadHandle];
    const samples = await ask("thread", "samples", ...at);
    const withIdle = await ask("thread", "samples", "--include-idle", ...at);
    // On a thread without samples, profiler-cli counts the bytes of its allocations instead.
    const timing = samples.callTreeSummaryStrategy === "timing";
    thread.samples = timing ? samples.categoryBreakdown.totalSamples : 0;
    thread.samplesWithIdle = timing ? withIdle.categoryBreakdown.totalSamples : 0;
    thread.category = timing ? samples.categoryBreakdown.categories.map((category) => category.name) : [];
    // "thread samples" names at most 50 functions.
    const { functions } = await ask("thread", "functions", "--include-idle", "--limit", "0", ...at);
    thread.function = timing ? functions.filter((func) => func.totalSamples > 0).map((func) => func.name) : [];
    thread.script = [];
    const scripts = Object.entries(expect.scripts ?? {}).filter(([pattern]) => new RegExp(pattern).test(thread.name));
    const isScript = (name) => scripts.some(([, items]) => items.some((item) => new RegExp(item).test(name)));
    if (scripts.length) {
      for (const { functionHandle, name } of functions.filter(({ name }, i) => i < 40 || isScript(name))) {
        const { isJS, relevantForJS } = await ask("function", "info", functionHandle);
        if (isJS || relevantForJS) thread.script.push(name);
      }
    }
    const markers = await ask("thread", "markers", "--limit", "0", ...at);
    thread.marker = markers.byType.map((group) => group.markerName);
    thread.longestMs = Object.fromEntries(markers.byType.map((group) => [group.markerName, group.durationStats?.max]));
  }

  const onThreads = (wanted, noun, test) => {
    for (const [pattern, items] of Object.entries(wanted ?? {})) {
      const matching = threads.filter((thread) => new RegExp(pattern).test(thread.name));
      const names = matching.flatMap((thread) => thread[noun]);
      const samples = matching.reduce((sum, thread) => sum + thread.samples, 0);
      for (const item of items) {
        const found = `${list(names)} (on ${matching.length} threads with ${samples} samples)`;
        const ok = names.some((name) => test(item, name));
        check(`${noun} ${item} on ${pattern}`, ok, matching.length ? found : `only the threads ${threadNames}`);
      }
    }
  };
  onThreads(expect.hotFunctions, "function", (item, name) => new RegExp(item).test(name));
  onThreads(expect.scripts, "script", (item, name) => new RegExp(item).test(name));
  for (const [pattern, items] of Object.entries(expect.scripts ?? {})) {
    const matching = threads.filter((thread) => new RegExp(pattern).test(thread.name));
    const others = matching.flatMap((thread) => thread.script).filter((name) => !items.some((item) => new RegExp(item).test(name)));
    check(`no other script on ${pattern}`, !others.length, list(others));
  }
  onThreads(expect.markers, "marker", (item, name) => item === name);
  onThreads(expect.categories, "category", (item, name) => item === name);
  for (const [pattern, limits] of Object.entries(expect.longestMs ?? {})) {
    const matching = threads.filter((thread) => new RegExp(pattern).test(thread.name));
    for (const [name, [least, most]] of Object.entries(limits)) {
      const longest = Math.max(...matching.map((thread) => thread.longestMs[name] ?? -1));
      check(`a longest marker ${name} of ${least} to ${most} ms on ${pattern}`, longest >= least && longest <= most, `${longest} ms`);
    }
  }

  for (const wanted of expect.processes ?? []) {
    const samples = (process) => process.threads.reduce((sum, thread) => sum + thread.samplesWithIdle, 0);
    const ok = processes.some((process) => process.name === wanted && samples(process) > 0);
    const known = processes.map((process) => `${process.name} with ${samples(process)} samples`);
    check(`process ${wanted} with samples`, ok, list(known));
  }
  if (expect.leftOut !== undefined) {
    const events = Object.values(profile.profileGatheringLog ?? {}).flatMap((log) => log.events);
    const names = events.flatMap(({ event }) => /^process \d+ \((.*)\): left out, because /.exec(event)?.[1] ?? []);
    const ok = names.length === expect.leftOut.length && expect.leftOut.every((name) => names.includes(name));
    check(`a log that says that ${list(expect.leftOut)} was left out`, ok, list(events.map(({ event }) => event)));
  }

  const counters = processes.flatMap((process) => process.counters ?? []).map((counter) => counter.name);
  for (const name of expect.counters ?? []) check(`counter ${name}`, counters.includes(name), list(counters));
}

const [file, flag, expectFile, ...rest] = process.argv.slice(2);
if (!file || flag !== "--expect" || !expectFile || rest.length) {
  console.error("usage: check-profile.mjs PROFILE.json --expect EXPECT.json");
  process.exit(2);
}
if (Number.parseInt(process.versions.node, 10) < 24) {
  console.error(`check-profile.mjs: cannot run profiler-cli: got Node ${process.version}, expected 24 or later; run .ci/install-readers`);
  process.exit(2);
}
const expect = JSON.parse(readFileSync(expectFile));
const known = ["product", "threads", "hotFunctions", "scripts", "markers", "longestMs", "categories", "counters", "processes", "leftOut"];
const unknown = Object.keys(expect).filter((key) => !known.includes(key));
if (unknown.length) {
  console.error(`check-profile.mjs: cannot use ${expectFile}: got the keys ${unknown.join(", ")}, expected ${known.join(", ")}`);
  process.exit(2);
}

for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, () => {
    endDaemon();
    process.exit(1);
  });
}
try {
  await checkProfile(resolve(file), expect);
} catch (error) {
  check("a profile that can be read to its end", false, error.message);
} finally {
  await reader(["stop"], 10_000).catch(() => {});
  endDaemon();
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
