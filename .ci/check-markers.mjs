// Opens the profile of the example `marker_gallery` in the Firefox Profiler's own loader, and
// checks how the loader interprets each marker.
//
//   target/readers/node_modules/.bin/node .ci/check-markers.mjs PROFILE.json
//
// The expected results are in marker_gallery.expect.json. The script prints one line for each
// format, type, place, graph, phase, stack and page. It checks them as follows:
// - Fields, phases, stacks, logs, requests, trees of allocations: the output of
//   `profiler-cli … --json`.
// - Labels, the places where markers are shown, tracks with their values, tabs: the results of the
//   page's own functions.
// - Colors of graphs and markers, descriptions, hidden fields, the nesting of intervals: the
//   schema that the loader made, because only the page draws them.

import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { openProfile } from "./loader.mjs";

const [file, ...rest] = process.argv.slice(2);
if (!file || rest.length) {
  console.error("usage: check-markers.mjs PROFILE.json");
  process.exit(2);
}
const expect = JSON.parse(readFileSync(join(dirname(fileURLToPath(import.meta.url)), "marker_gallery.expect.json")));

let passed = 0;
let failed = 0;
function check(what, wanted, found) {
  // Keeps the output on one line: JSON does not escape these characters.
  const escaped = (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`;
  const show = (value) => JSON.stringify(value)?.replace(/[\u007f\u2028]/g, escaped);
  const ok = isDeepStrictEqual(found, wanted);
  if (ok) passed++;
  else failed++;
  console.log(ok ? `ok ${what}: ${show(wanted)}` : `FAILED: ${what}: got ${show(found)}, expected ${show(wanted)}`);
}

const viewer = await openProfile(resolve(file));
const { profile, querier, state, tracks } = viewer;
const { markers } = await querier.profileMarkers({ limit: 100_000 });
const named = (name) => markers.filter((marker) => marker.name === name);
const round = (value) => (typeof value === "number" ? Math.round(value * 1e4) / 1e4 : value);
const threadNames = profile.threads.map((thread) => thread.name);
const threadNamed = (name) => profile.threads[threadNames.indexOf(name)];

// Start of the gallery, in milliseconds since the start of the profile, as profiler-cli counts
// them. `zero` is the start of the profile in the milliseconds of the file.
const begin = named("instant")[0].start - 10;
const { start: zero, end } = querier._getContext().rootRange;
const intervalMs = 1;
const fieldsOf = (marker) => Object.fromEntries((marker?.fields ?? []).map((field) => [field.label, field.formattedValue]));

// Returns the displayed time if it is right, otherwise the expected time. The display rounds more
// the older the process is, and the process can be as old as the cargo build that started it.
function timeInWords(ms, found) {
  const units = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000, ms: 1 };
  const parts = [...String(found).matchAll(/([\d.,]+)([a-z]+)/g)];
  const said = parts.reduce((sum, [, number, unit]) => sum + Number(number.replaceAll(",", "")) * units[unit], 0);
  return Math.abs(said - ms) <= ms / 100 ? found : `${ms}ms`;
}
const words = {
  awkward: expect.awkward,
  pid: threadNamed("GeckoMain").pid,
  tid: threadNamed("GeckoMain").tid,
  "other tid": threadNamed("other side").tid,
  process: threadNamed("GeckoMain").processName,
  time: timeInWords(begin + zero + 10, fieldsOf(named("time")[0]).Typical),
};
const fill = (text) => text.replace(/\{([a-z ]+)\}/g, (whole, word) => words[word] ?? whole);
const filled = (fields) => Object.fromEntries(Object.entries(fields).map(([key, value]) => [key, fill(value)]));

// What the page's functions return for the marker of this name, on its thread.
function onPage(name) {
  const ask = (which) => viewer.selector(name, which)(state);
  const index = ask("getFullMarkerList").findIndex((marker) => marker.name === name);
  const shown = (which) => ask(which).includes(index);
  return { index, label: (which) => ask(which)(index), shown, marker: ask("getFullMarkerList")[index] };
}

for (const [format, fields] of Object.entries(expect.formats)) {
  check(`format ${format}`, filled(fields), fieldsOf(named(format)[0]));
}

const labels = { chart: "getMarkerChartLabelGetter", table: "getMarkerTableLabelGetter", tooltip: "getMarkerTooltipLabelGetter" };
for (const [type, wanted] of Object.entries(expect.types)) {
  const [found] = named(wanted.name);
  if (!found) {
    check(`type ${type}`, `a marker ${wanted.name}`, "none");
    continue;
  }
  const info = await querier.markerInfo(found.handle);
  const page = onPage(wanted.name);
  const has = { name: found.name, type: found.markerType, ms: round(found.duration), description: info.schema?.description };
  for (const [key, which] of Object.entries(labels)) has[key] = page.label(which);
  const asked = { name: wanted.name, type, ms: wanted.ms, description: wanted.description };
  for (const key of Object.keys(labels)) asked[key] = wanted[key] === undefined ? has[key] : fill(wanted[key]);
  check(`type ${type}`, { ...asked, fields: filled(wanted.fields) }, { ...has, fields: fieldsOf(found) });
}

const { name: arrival, ms, table } = expect.ipcIn;
const [received] = named(arrival);
const arrived = received && [received.threadHandle, round(received.duration), onPage(arrival).label(labels.table)];
check("the other end of a message", ["t-1", ms, fill(table)], arrived);
const flows = expect.flow.map((name) => named(name)[0]?.fields?.find((field) => /flow/i.test(field.key))?.formattedValue);
check("flow", Array(expect.flow.length).fill("000000000000f10f"), flows);

const selectors = {
  "marker-chart": "getMarkerChartMarkerIndexes",
  "marker-table": "getMarkerTableMarkerIndexes",
  "timeline-overview": "getTimelineOverviewMarkerIndexes",
  "timeline-memory": "getTimelineMemoryMarkerIndexes",
  "timeline-ipc": "getTimelineIPCMarkerIndexes",
  "timeline-fileio": "getTimelineFileIoMarkerIndexes",
};
const trackOn = (type, name) => tracks.some((track) => track.type === type && threadNames[track.threadIndex] === name);
const schemas = new Map(profile.meta.markerSchema.map((schema) => [schema.name, schema]));
for (const place of expect.places) {
  const page = onPage(`place ${place}`);
  const found = Object.keys(selectors).filter((other) => page.shown(selectors[other]));
  // The page has no selector for this place: it reads these markers when it creates tracks.
  if (place === "timeline-network" && trackOn("network", "other side")) found.push(place);
  // The page does not show markers in the stack chart yet, so this checks the schema.
  if (schemas.get(`place ${place}`)?.display.includes("stack-chart")) found.push("stack-chart");
  check(`place ${place}`, [place], found);
}
for (const [type, thread] of [["ipc", "GeckoMain"], ["ipc", "other side"], ["network", "GeckoMain"], ["screenshots", "GeckoMain"]]) {
  check(`track ${type} on ${thread}`, true, trackOn(type, thread));
}

for (const [name, graphs] of Object.entries(expect.graphs)) {
  const track = tracks.find((track) => track.type === "marker" && track.markerSchema.name === name);
  const found = track?.markerSchema.graphs.map(({ key, type, color }) => [key, type, color ?? null]);
  check(`${name}, a track`, graphs, found);
  const values = expect.graphValues[name] ?? expect.graphValues["graph bar blue"];
  const drawn = track && viewer.selector(name, "getMarkerTrackSelectors")(track.markerSchema, track.markerName);
  check(`${name}, its values`, values, drawn?.getCollectedCustomMarkerSamples(state).numbersPerLine);
}
const { colorField } = schemas.get("colored");
check("colors of markers", ["red", "teal", "no color"], named("colored").map((marker) => marker.data?.[colorField]));
check("a hidden field", [true, undefined], [schemas.get("colored").fields[0].hidden, named("colored")[0].fields?.[0]]);
check("intervals within intervals", [true, 3], [schemas.get("nested").isStackBased, named("nested").length]);

for (const [name, [from, to]] of Object.entries(expect.phases)) {
  const [found] = named(name);
  const last = found && found.duration !== undefined ? found.start + found.duration : null;
  // The gallery sleeps for 300 ms before anything is “now”. An open marker ends one interval after
  // the thread's last sample.
  const inWords = (time, asked) => {
    if (asked === "beginning") return time < begin + 60 ? asked : time;
    if (asked === "now") return time >= begin + 300 && time + zero <= end + intervalMs ? asked : time;
    return time === null ? null : round(time - begin);
  };
  check(`phase: ${name}`, [from, to], found ? [inWords(found.start, from), inWords(last, to)] : "none");
}

for (const [name, functions] of Object.entries(expect.stacks)) {
  for (const { handle, hasStack } of named(name)) {
    const frames = hasStack ? (await querier.markerStack(handle)).stack.frames.map((frame) => frame.name) : [];
    check(name, functions, frames.slice(0, functions.length));
  }
  if (!named(name).length) check(name, functions, "no such marker");
}

for (const [strategy, functions] of Object.entries(expect.allocations)) {
  const samples = await querier.threadSamples("t-0", false, undefined, undefined, strategy).catch((error) => ({ error: error.message }));
  const found = (samples.topFunctionsByTotal ?? []).flatMap(({ name, totalSamples }) => {
    const [own] = name.match(/(?<=!)marker_gallery::known::\w+_a_buffer$/) ?? [];
    return own ? [[own, totalSamples]] : [];
  });
  check(`tree of ${strategy}`, functions, samples.error ?? Object.fromEntries(found));
}

const logs = (await querier.profileLogs({})).entries.map((entry) => entry.replace(/^.* UTC - \[.*\]: /, ""));
check("logs", expect.logs, logs);
const { requests } = await querier.threadNetwork("t-0", { limit: 0 });
for (const [url, wanted] of Object.entries(expect.requests)) {
  const found = requests.find((request) => request.url === url);
  const phases = Object.fromEntries(Object.entries(found?.phases ?? {}).map(([key, value]) => [key, round(value)]));
  const same = Object.fromEntries(Object.keys(wanted).map((key) => [key, found?.[key]]));
  check(`request ${url}`, wanted, { ...same, phases });
}

const threadsOf = (tabID) => {
  const pages = profile.pages.filter((page) => page.tabID === tabID).map((page) => page.innerWindowID);
  const works = ({ usedInnerWindowIDs }) => usedInnerWindowIDs?.some((id) => pages.includes(id));
  return profile.threads.filter(works).map((thread) => thread.name);
};
const tabs = viewer.tabs().map(({ tabID, pageData }) => [pageData.hostname, threadsOf(tabID)]);
check("tabs, with the threads that work for them", expect.tabs, Object.fromEntries(tabs));
check("windows of markers", expect.windows, Object.fromEntries(Object.keys(expect.windows).map((name) => [name, onPage(name).marker?.data?.innerWindowID])));
check("a marker on another thread's track", ["t-0"], named("on the main thread's track").map((marker) => marker.threadHandle));

// The page shows a null element of a list as “(empty)” and logs that it does.
const complaints = viewer.complaints.filter((text) => !/^Formatting null for list with/.test(text));
check("no warnings or errors logged by the page", [], complaints);
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
