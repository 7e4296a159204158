// Opens traces in DevTools' trace engine: chrome-trace.mjs DEVTOOLS FILE...
//
// All samples must arrive, events must nest, flows and pairs must be found, and the calls that the file contains must
// be those that DevTools itself estimates from the samples, where no marker of the host changes them.

import { Counts, compare, complaints, fail, functionsOnly, namesOf, readJson } from "./check-chrome.mjs";

const [devtools, ...files] = process.argv.slice(2);
const { Trace } = await import(devtools);

async function check(file) {
  const { traceEvents } = readJson(file);
  const model = Trace.TraceModel.Model.createWithAllHandlers();
  await model.parse(traceEvents, { isCPUProfile: false });
  const { data } = model.parsedTrace(0);
  if (complaints.length) fail(file, `DevTools complains: ${complaints[0]}`);

  const tracks = new Map();
  for (const event of traceEvents) {
    const key = `${event.pid} ${event.tid}`;
    if (!tracks.has(key)) tracks.set(key, { pid: event.pid, tid: event.tid, events: [], samples: [], deltas: [] });
    const track = tracks.get(key);
    if (["X", "B", "I", "i"].includes(event.ph)) track.events.push(event);
    if (event.name === "thread_name") track.name = event.args.name;
    if (event.name === "ProfileChunk") {
      track.samples.push(...event.args.data.cpuProfile.samples);
      track.deltas.push(...event.args.data.timeDeltas);
    }
  }
  const seen = { events: 0, samples: 0, calls: 0, flows: data.Flows.flows.length };
  for (const track of tracks.values()) {
    const thread = data.Renderer.processes.get(track.pid)?.threads.get(track.tid);
    if (track.events.length) {
      // DevTools leaves out what does not nest.
      const shown = track.events.length ? countTree(thread?.tree) : 0;
      if (shown !== track.events.length) fail(file, `${track.name}: DevTools shows ${shown} of ${track.events.length} events`);
      if (thread.name !== track.name) fail(file, `got the name ${thread.name}, expected ${track.name}`);
      seen.events += shown;
    }
    if (track.samples.length) {
      checkSamples(file, track, data.Samples.profilesInProcess.get(track.pid)?.get(track.tid), thread, tracks);
      seen.samples += track.samples.length;
      seen.calls += thread?.profileCalls.length ?? 0;
    }
  }
  const flowIds = new Set(traceEvents.filter(({ ph }) => ph === "s").map(({ id }) => id));
  if (seen.flows !== flowIds.size) fail(file, `DevTools finds ${seen.flows} of ${flowIds.size} flows`);
  if (!seen.events && !seen.samples) fail(file, "DevTools finds neither events nor samples");
  console.log(`${file}: ${seen.events} events, ${seen.flows} flows, ${seen.samples} samples, of which DevTools makes ${seen.calls} calls`);
}

function countTree(tree) {
  let count = 0;
  const nodes = [...(tree?.roots ?? [])];
  while (nodes.length) {
    count += 1;
    nodes.push(...nodes.pop().children);
  }
  return count;
}

function checkSamples(file, track, profile, thread, tracks) {
  const { parsedProfile } = profile ?? fail(file, `DevTools finds no profile of ${track.name}`);
  if (parsedProfile.samples.length !== track.samples.length) {
    fail(file, `${track.name}: DevTools finds ${parsedProfile.samples.length} of ${track.samples.length} samples`);
  }
  // A sample lasts until the next one.
  const total = track.deltas.reduce((sum, delta) => sum + delta, 0);
  const mean = total / Math.max(track.samples.length - 1, 1);
  const expected = new Counts();
  for (let index = 0; index < track.samples.length; index++) {
    if (parsedProfile.samples[index] !== track.samples[index]) fail(file, `${track.name}: DevTools overwrites sample ${index}`);
    const node = parsedProfile.nodeById(track.samples[index]);
    if (!node) fail(file, `${track.name}: DevTools finds no node ${track.samples[index]}`);
    const names = namesOf(node);
    expected.add(names, (track.deltas[index + 1] ?? mean) / mean);
  }
  // DevTools ends the last calls at the last sample. It has no thread whose samples are all idle.
  const calls = (thread?.profileCalls ?? []).map(({ callFrame, ts, dur }) => [callFrame.functionName, ts, ts + (dur ?? 0)]);
  compare(file, `of ${track.name} that DevTools estimates`, functionsOnly(countCalls(calls, mean)), functionsOnly(expected));

  // The calls of the same thread in the file.
  const own = [...tracks.values()].find(({ pid, name }) => pid === track.pid && `${name} (samples)` === track.name);
  if (own && own.events.every(({ cat }) => cat === "call")) {
    const written = own.events.map(({ name, ts, dur }) => [name, ts, ts + dur]);
    compare(file, `of ${own.name} in its X events`, functionsOnly(countCalls(written, mean)), functionsOnly(expected));
  }
}

// Counts calls that nest, in samples.
function countCalls(calls, mean) {
  const counts = new Counts();
  calls.sort((one, other) => one[1] - other[1] || other[2] - one[2]);
  const open = [];
  for (const [name, start, end] of calls) {
    while (open.length && open.at(-1).end <= start) open.pop();
    const length = (end - start) / mean;
    if (open.length) counts.of(open.at(-1).name).self -= length;
    counts.of(name).self += length;
    if (!open.some((outer) => outer.name === name)) counts.of(name).total += length;
    open.push({ name, end });
  }
  return counts;
}

for (const file of files) {
  complaints.length = 0;
  await check(file);
}
