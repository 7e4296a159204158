// Compares two hierarchies node for node. Arguments: the folder of npm packages, a .cpuprofile, a flame graph.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const [packages, cpuProfileFile, graphFile] = process.argv.slice(2);
const require = createRequire(resolve(packages, "index.js"));
const { convertToMergedFlameGraph } = require("./cpuprofile-to-flamegraph");

const read = (file) => JSON.parse(readFileSync(file, "utf8"));
const cpuProfile = read(cpuProfileFile);
const expected = convertToMergedFlameGraph(cpuProfile);
if (expected === undefined) throw new Error(`${cpuProfileFile}: no samples`);

const fail = (place, what, got, wanted) => {
  console.error(`${graphFile}: ${what} of ${place}: got ${JSON.stringify(got)}, expected ${JSON.stringify(wanted)}`);
  process.exit(1);
};

let count = 0;
const open = [[read(graphFile), expected, expected.name]];
while (open.length > 0) {
  const [node, wanted, place] = open.pop();
  count += 1;
  for (const key of ["name", "value", "executionTime", "nodeModule"]) {
    if (node[key] !== wanted[key]) fail(place, key, node[key], wanted[key]);
  }
  const { id, callFrame } = wanted.profileNode;
  const [got, all] = [JSON.stringify(node.profileNode), JSON.stringify({ id, callFrame })];
  if (got !== all) fail(place, "profileNode", node.profileNode, { id, callFrame });
  if (node.children.length !== wanted.children.length) {
    fail(place, "number of children", node.children.length, wanted.children.length);
  }
  node.children.forEach((child, at) => open.push([child, wanted.children[at], `${place}/${at}:${child.name}`]));
}
const sum = cpuProfile.timeDeltas.reduce((total, delta) => total + delta, 0);
if (expected.executionTime !== sum) fail("the root", "executionTime", expected.executionTime, sum);
console.log(`${graphFile}: ${count} nodes equal those of cpuprofile-to-flamegraph, ${sum} µs`);
