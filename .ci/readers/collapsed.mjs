// Checks a file of collapsed stacks.
// Arguments: the picture that inferno drew of the file, the file, and the expected totals, if any.
import { readFileSync } from "node:fs";
import { Totals } from "./totals.mjs";

const [picture, file, totals] = process.argv.slice(2);
const fail = (message) => {
  console.error(`${file}: ${message}`);
  process.exit(1);
};

const functions = new Totals();
let sum = 0;
for (const [at, line] of readFileSync(file, "utf8").trimEnd().split("\n").entries()) {
  const parts = /^(.+) ([1-9][0-9]*)$/.exec(line);
  if (!parts) fail(`line ${at + 1}: got ${JSON.stringify(line)}, expected frames and a count`);
  const [, stack, count] = parts;
  // The first frame is the thread.
  functions.add(stack.split(";").slice(1), Number(count));
  sum += Number(count);
}
const drawn = /<title>all \(([0-9,]+) samples?, 100%\)<\/title>/.exec(readFileSync(picture, "utf8"));
const seen = Number(drawn?.[1].replaceAll(",", ""));
if (seen !== sum) fail(`inferno drew ${seen} samples, expected ${sum}`);
if (totals !== undefined) {
  const rename = (name) => name.replaceAll(";", ":").replace(/^$/, "(unnamed)");
  const differences = functions.differences(totals, 1, rename);
  if (differences.length > 0) fail(differences.join("\n"));
}
console.log(`${file}: inferno drew ${sum} samples${totals === undefined ? "" : ", and all totals agree"}`);
