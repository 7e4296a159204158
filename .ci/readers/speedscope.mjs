// Checks a file in speedscope's importer. Arguments: the folder of npm packages, the file, and perhaps the totals.
//
// The package has only the page, as one script. This runs the script in a context without a page,
// and takes the importer out before the page is drawn.
import { readFileSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import vm from "node:vm";
import { Totals } from "./totals.mjs";

const [packages, file, totals] = process.argv.slice(2);
const fail = (message) => {
  console.error(`${file}: ${message}`);
  process.exit(1);
};

function importer() {
  const folder = join(packages, "speedscope/dist/release");
  const name = readdirSync(folder).find((entry) => /^speedscope-\w+\.js$/.test(entry));
  const page = readFileSync(join(folder, name), "utf8");
  const call = /loadFileFromBase64:\((\w+),(\w+)\)=>\{this\.loadProfile\(\(\)=>(\w+)\(\1,\2\)\)/.exec(page);
  const end = page.lastIndexOf("console.log(`speedscope v");
  if (!call || end < 0) fail("this version of speedscope is not known");
  // Accepts any use, because the page only looks around before it is drawn.
  const anything = new Proxy(function () {}, {
    get: (_, key) => (key === Symbol.toPrimitive ? () => "" : anything),
    apply: () => anything,
    construct: () => anything,
  });
  const window = { location: { hash: "", search: "", protocol: "file:" }, addEventListener() {}, matchMedia: anything };
  const context = vm.createContext({
    window, self: window, document: anything, location: window.location, navigator: { userAgent: "", platform: "" },
    localStorage: anything, matchMedia: anything, console: { ...console, log() {} }, atob, btoa, TextDecoder,
    TextEncoder, URLSearchParams, URL, performance, setTimeout, requestAnimationFrame: anything,
  });
  vm.runInContext(`${page.slice(0, end)}globalThis.importProfiles=${call[3]};})();`, context);
  return context.importProfiles;
}

const written = JSON.parse(readFileSync(file, "utf8"));
const group = await importer()(basename(file), readFileSync(file).toString("base64"));
if (!group) fail("speedscope found no profile");
if (group.profiles.length !== written.profiles.length) {
  fail(`got ${group.profiles.length} profiles, expected ${written.profiles.length}`);
}
const functions = new Totals();
for (const [at, profile] of group.profiles.entries()) {
  const { name, unit, endValue } = written.profiles[at];
  const got = [profile.getName(), profile.getWeightUnit(), profile.getTotalWeight()].join(", ");
  const expected = [name, unit, endValue].join(", ");
  if (got !== expected) fail(`profile ${at}: got ${got}, expected ${expected}`);
  const open = profile.getAppendOrderCalltreeRoot().children.map((node) => [node, []]);
  while (open.length > 0) {
    const [node, callers] = open.pop();
    const path = [...callers, node.frame.name];
    functions.add(path, node.getSelfWeight());
    node.children.forEach((child) => open.push([child, path]));
  }
}
if (totals !== undefined) {
  const differences = functions.differences(totals, 1);
  if (differences.length > 0) fail(differences.join("\n"));
}
const agree = totals === undefined ? "" : ", and all totals agree";
console.log(`${file}: speedscope opened ${group.profiles.length} profiles${agree}`);
