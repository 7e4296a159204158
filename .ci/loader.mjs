// Loads the Firefox Profiler's own loader, as profiler-cli contains it, into this process.
//
// profiler-cli prints what its `ProfileQuerier` returns; this script uses the same object, without
// a daemon in between. No command of profiler-cli prints tracks, the places where markers are
// shown, or labels other than the table's, but its bundle contains the page's code for them. This
// script reads the bundle and patches that code, so that the code exposes its results. It finds the
// places to patch by names and texts that bundling keeps, in the version that install-readers
// installs. If another version lacks them, this script fails with a message.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { compileFunction } from "node:vm";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const cli = join(root, "target/readers/node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js");

function replaceOnce(text, what, pattern, replacement) {
  const places = [...text.matchAll(new RegExp(pattern, "g"))].length;
  if (places !== 1) throw new Error(`cannot patch profiler-cli: got ${places} places for ${what}, expected 1; adapt loader.mjs to this version`);
  return text.replace(pattern, replacement);
}

function readLoader() {
  let text = readFileSync(cli, "utf8").replace(/^#!.*\n/, "");
  text = replaceOnce(text, "its beginning", /([\w$]+\(\))\.catch\(([\w$]+)=>\{console\.error\(`Fatal error: \$\{\2\}`\)/, "0&&$&");
  text = replaceOnce(text, "the selectors of markers", /return(\{getMarkerGetter:[^{}]*\})/, "return __found.selectors($1)");
  const tabs = /.*\b([\w$]+)=\(0,[\w$]+\.createSelector\)/s.exec(text.slice(0, text.indexOf("Failed to find the thread score!")))?.[1];
  const querier = /([\w$]+)=class [\w$]+\{_store;_processIndexMap;/.exec(text)?.[1];
  if (!querier || !tabs) throw new Error("cannot patch profiler-cli: it lacks a name; adapt loader.mjs to this version");
  const found = {
    all: [],
    selectors(selectors) {
      this.all.push(selectors);
      return selectors;
    },
  };
  const parameters = ["exports", "require", "module", "__filename", "__dirname", "__found"];
  const run = compileFunction(`${text}\n;__found.querier=${querier};__found.tabs=${tabs};`, parameters, { filename: cli });
  run({}, createRequire(cli), {}, cli, dirname(cli), found);
  return found;
}

// Opens a profile as the page does. `complaints` collects everything that the page prints to its
// console from here on.
export async function openProfile(file) {
  const complaints = [];
  const { log } = console;
  console.warn = console.error = (...what) => complaints.push(what.map(String).join(" "));
  console.log = () => {};
  const found = readLoader();
  const querier = await found.querier.load(file, { skipSymbolication: true });
  console.log = log;
  const state = querier._store.getState();
  const { profile, globalTracks, localTracksByPid } = state.profileView;
  return {
    complaints,
    querier,
    profile,
    tracks: [...globalTracks, ...[...localTracksByPid.values()].flat()],
    // The tabs in the tab selector: those that at least one thread works for.
    tabs: () => found.tabs(state),
    // Returns a marker selector of the page, for the thread that has a marker of this name.
    selector(markerName, which) {
      // A thread's selectors are created on first use.
      const has = (selectors) => selectors.getFullMarkerList(state).some((marker) => marker.name === markerName);
      const selectors = found.all.find(has);
      if (!selectors) throw new Error(`cannot find a thread with a marker ${markerName}`);
      return (...more) => selectors[which](...more);
    },
    state,
  };
}
