// Opens .cpuprofile files in DevTools' CPUProfileDataModel: cpuprofile.mjs DEVTOOLS NODE_FILE FILE[=SELF_PROFILE]...
//
// Self and total times must be those of the samples, and those of SELF_PROFILE, the same thread as a JS
// Self-Profiling trace. A file has only keys that NODE_FILE, which Node wrote, has too.

import { Counts, META, compare, complaints, countSelfProfile, fail, functionsOnly, namesOf, readJson } from "./check-chrome.mjs";

const [devtools, nodeFile, ...files] = process.argv.slice(2);
const { CPUProfile } = await import(devtools);

// The keys of each kind of object in the file.
function keysOf(profile) {
  const keys = { profile: new Set(Object.keys(profile)), node: new Set(), callFrame: new Set(), tick: new Set() };
  for (const node of profile.nodes) {
    Object.keys(node).forEach((key) => keys.node.add(key));
    Object.keys(node.callFrame).forEach((key) => keys.callFrame.add(key));
    (node.positionTicks ?? []).forEach((tick) => Object.keys(tick).forEach((key) => keys.tick.add(key)));
  }
  return keys;
}

const nodeKeys = keysOf(readJson(nodeFile));

function check(file, selfProfile) {
  const raw = readJson(file);
  const { samples, timeDeltas, startTime, endTime, nodes } = raw;
  for (const [kind, keys] of Object.entries(keysOf(raw))) {
    for (const key of keys) if (!nodeKeys[kind].has(key)) fail(file, `a ${kind} has the key ${key}, which Node does not write`);
  }
  if (nodes[0].id !== 1 || nodes[0].callFrame.functionName !== "(root)") fail(file, "the first node is not (root) with id 1");
  if (samples.length !== timeDeltas.length) fail(file, `got ${timeDeltas.length} deltas for ${samples.length} samples`);
  if (timeDeltas.some((delta) => !(delta >= 0))) fail(file, "a delta is negative");

  const hits = new Map();
  for (const id of samples) hits.set(id, (hits.get(id) ?? 0) + 1);
  for (const { id, hitCount, positionTicks } of nodes) {
    if (hitCount !== (hits.get(id) ?? 0)) fail(file, `node ${id}: got hitCount ${hitCount}, expected ${hits.get(id) ?? 0}`);
    const ticks = (positionTicks ?? []).reduce((sum, { ticks }) => sum + ticks, 0);
    if (ticks > hitCount) fail(file, `node ${id}: got ${ticks} positionTicks for hitCount ${hitCount}`);
  }

  const model = new CPUProfile.CPUProfileDataModel.CPUProfileDataModel(structuredClone(raw));
  // The samples, each with its stack as DevTools' tree has it.
  const expected = new Counts();
  for (const id of samples) {
    const node = model.nodeById(id);
    if (!node) fail(file, `DevTools finds no node ${id}`);
    expected.add(namesOf(node), 1);
  }
  // The times that DevTools shows for the nodes. A recursive call's time lies in that of its caller.
  const sampleMs = (endTime - startTime) / 1000 / samples.length;
  const shown = new Counts();
  for (const node of model.nodes()) {
    const names = namesOf(node);
    if (!names.length) continue;
    shown.of(names.at(-1)).self += node.self / sampleMs;
    if (!names.slice(0, -1).includes(names.at(-1))) shown.of(names.at(-1)).total += node.total / sampleMs;
  }
  compare(file, "in the tree", shown, expected);

  // The flame chart. DevTools overwrites a single sample of V8's (program) between like stacks.
  const overwritten = samples.findIndex((id, index) => model.samples[index] !== id);
  if (overwritten >= 0) fail(file, `DevTools overwrites sample ${overwritten}`);
  let covered = 0;
  model.forEachFrame(() => {}, (_depth, _node, _index, _start, _duration, self) => {
    covered += self / sampleMs;
  });
  // A sample lasts until the next one, and the last one as long as the mean.
  const between = timeDeltas.slice(1).reduce((sum, delta) => sum + delta, 0) / 1000;
  const lasting = (between + between / (samples.length - 1)) / sampleMs;
  if (Math.abs(covered - lasting) > 1) fail(file, `the flame chart shows ${covered} of ${lasting} samples`);
  if (Math.abs(lasting - samples.length) > 1) fail(file, `the samples last as long as ${lasting} of them`);
  if (selfProfile) {
    compare(file, "against the JS Self-Profiling trace", functionsOnly(expected), countSelfProfile(readJson(selfProfile)));
    compare(file, "that DevTools shows", functionsOnly(shown), countSelfProfile(readJson(selfProfile)));
  }
  if (complaints.length) fail(file, `DevTools complains: ${complaints[0]}`);
  const idle = shown.of("(idle)").self.toFixed(1);
  const functions = [...shown.byName.keys()].filter((name) => !META.includes(name)).length;
  console.log(`${file}: ${samples.length} samples, ${functions} functions, ${idle} idle samples`);
}

for (const argument of files) check(...argument.split("="));
