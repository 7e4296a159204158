// What the readers of Chrome's formats share.

import { readFileSync } from "node:fs";

// What DevTools wrote to the console: it reports many defects of a file only there.
export const complaints = [];
console.error = console.warn = (...what) => complaints.push(what.map(String).join(" "));

export function readJson(file) {
  return JSON.parse(readFileSync(file, "utf8"));
}

// Ends the process with what is wrong in the file.
export function fail(file, message) {
  process.stderr.write(`${file}: ${message}\n`);
  process.exit(1);
}

// Counts by function name: {self, total}. `add(names, weight)` counts a stack, the outermost name first.
export class Counts {
  byName = new Map();

  of(name) {
    if (!this.byName.has(name)) this.byName.set(name, { self: 0, total: 0 });
    return this.byName.get(name);
  }

  add(names, weight) {
    if (names.length) this.of(names.at(-1)).self += weight;
    for (const name of new Set(names)) this.of(name).total += weight;
  }
}

// Compares all functions, to within one sample, or `tolerance` of them.
export function compare(file, what, got, expected, tolerance = 1) {
  for (const name of new Set([...got.byName.keys(), ...expected.byName.keys()])) {
    for (const kind of ["self", "total"]) {
      const [one, other] = [got.of(name)[kind], expected.of(name)[kind]];
      // Times in floats add up with a small error.
      if (!(Math.abs(one - other) <= tolerance + 1e-6)) {
        fail(file, `${kind} samples of ${name} ${what}: got ${one}, expected ${other}`);
      }
    }
  }
}

// Returns the names of a node of a CPU profile and its callers, the outermost first, without `(root)`.
export function namesOf(parsedNode) {
  const names = [];
  for (let node = parsedNode; node.parent; node = node.parent) names.unshift(node.functionName);
  return names;
}

// Counts the samples of a JS Self-Profiling trace. Samples without a stack count for no function.
export function countSelfProfile(profile) {
  const counts = new Counts();
  for (const { stackId } of profile.samples) {
    const names = [];
    for (let id = stackId; id !== undefined; id = profile.stacks[id].parentId) {
      names.unshift(profile.frames[profile.stacks[id].frameId].name);
    }
    counts.add(names, 1);
  }
  return counts;
}

export const META = ["(program)", "(idle)", "(garbage collector)"];

// Returns the counts of functions, without the nodes that are none.
export function functionsOnly(counts) {
  const functions = new Counts();
  functions.byName = new Map([...counts.byName].filter(([name]) => !META.includes(name)));
  return functions;
}
