// The Firefox Profiler's own loader, as profiler-cli has it, in this process.
//
// profiler-cli prints what its `ProfileQuerier` answers; this asks the same object, without a daemon between. Tracks, the places
// where markers are shown, and labels other than the table's are on no command of profiler-cli, but its file holds the page's
// code for them: lines are put into that code as it is read, which give it out. Their places are found by names and texts that
// the file's making has left alone, in the version that install-readers installs; if another lacks them, this says so.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { compileFunction } from "node:vm";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const cli = join(root, "target/readers/node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js");

function replaceOnce(text, what, pattern, replacement) {
  const places = [...text.matchAll(new RegExp(pattern, "g"))].length;
  if (places !== 1) throw new Error(`profiler-cli has ${places} places for ${what}; loader.mjs is to be adapted to its version`);
  return text.replace(pattern, replacement);
}

function readLoader() {
  let text = readFileSync(cli, "utf8").replace(/^#!.*\n/, "");
  text = replaceOnce(text, "its beginning", /([\w$]+\(\))\.catch\(([\w$]+)=>\{console\.error\(`Fatal error: \$\{\2\}`\)/, "0&&$&");
  text = replaceOnce(text, "the selectors of markers", /return(\{getMarkerGetter:[^{}]*\})/, "return __found.selectors($1)");
  const tabs = /.*\b([\w$]+)=\(0,[\w$]+\.createSelector\)/s.exec(text.slice(0, text.indexOf("Failed to find the thread score!")))?.[1];
  const querier = /([\w$]+)=class [\w$]+\{_store;_processIndexMap;/.exec(text)?.[1];
  if (!querier || !tabs) throw new Error("profiler-cli lacks a name; loader.mjs is to be adapted to its version");
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

// What the page has of a profile. `complaints` is what it would print to its console, from here on.
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
    // Of the tab selector: the tabs that some thread works for.
    tabs: () => found.tabs(state),
    // A function of the page's for the markers of the thread that has one of this name.
    selector(markerName, which) {
      // The selectors of a thread are made when somebody asks for them.
      const has = (selectors) => selectors.getFullMarkerList(state).some((marker) => marker.name === markerName);
      const selectors = found.all.find(has);
      if (!selectors) throw new Error(`no thread has a marker ${markerName}`);
      return (...more) => selectors[which](...more);
    },
    state,
  };
}
