// Adds up the samples of functions, for the scripts in this folder.
import { readFileSync } from "node:fs";

/** Adds up samples by function. A function counts once for a sample, however often it is on the stack. */
export class Totals {
  #byName = new Map();

  /** Adds samples of one stack. `names` begins with the outermost function. */
  add(names, weight) {
    for (const name of new Set(names)) this.#of(name).total += weight;
    if (names.length > 0) this.#of(names.at(-1)).self += weight;
  }

  #of(name) {
    let entry = this.#byName.get(name);
    if (!entry) this.#byName.set(name, (entry = { self: 0, total: 0 }));
    return entry;
  }

  /**
   * Compares with a file of lines `SELF<TAB>TOTAL<TAB>NAME`. Returns the differences of more than
   * `tolerance`, and 1 millionth of the value for rounded numbers. Names go through `rename` first.
   */
  differences(file, tolerance, rename = (name) => name) {
    const expected = new Map();
    for (const line of readFileSync(file, "utf8").split("\n")) {
      if (line === "") continue;
      const [self, total, ...name] = line.split("\t");
      const key = rename(name.join("\t"));
      const entry = expected.get(key) ?? { self: 0, total: 0 };
      entry.self += Number(self);
      entry.total += Number(total);
      expected.set(key, entry);
    }
    const differences = [];
    for (const name of new Set([...expected.keys(), ...this.#byName.keys()])) {
      const ours = this.#byName.get(name) ?? { self: 0, total: 0 };
      const theirs = expected.get(name) ?? { self: 0, total: 0 };
      for (const kind of ["self", "total"]) {
        const allowed = tolerance + theirs[kind] / 1e6;
        if (Math.abs(ours[kind] - theirs[kind]) > allowed) {
          differences.push(`${kind} of ${name}: got ${ours[kind]}, expected ${theirs[kind]}`);
        }
      }
    }
    return differences;
  }
}
