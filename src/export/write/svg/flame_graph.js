// Lays out, zooms and searches the flame graph. Without this script, the file is a picture of the
// whole graph.
(() => {
  "use strict";

  const MARGIN = 10;
  const CHARACTER_WIDTH = 7.25;
  const NARROWEST = 0.1;

  const svg = document.currentScript.closest("svg");
  const find = (selector) => svg.querySelector(selector);
  const all = Number(find("#boxes").getAttribute("data-total"));
  // Boxes that the file leaves out cannot be found.
  const isWhole = find("#boxes").getAttribute("data-hidden") === "0";
  const search = find("#search");
  const reset = find("#reset");
  const matched = find("#matched");
  const details = find("#details");

  // The boxes by start and depth. Each one follows its caller.
  const boxes = [];
  const rows = [];
  const callers = [];
  for (const group of svg.querySelectorAll(".box")) {
    const [start, total, depth] = group.getAttribute("data-range").split(",").map(Number);
    const title = group.querySelector("title").textContent;
    const row = (rows[depth] ||= []);
    const box = {
      group,
      rect: group.querySelector("rect"),
      text: group.querySelector("text"),
      start,
      end: start + total,
      depth,
      title,
      name: title.split("\n")[0],
      caller: callers[depth - 1],
      callees: [],
      place: row.length,
      isShown: true,
    };
    callers[depth] = box;
    box.caller?.callees.push(box);
    row.push(box);
    boxes.push(box);
    group.setAttribute("role", "treeitem");
    group.setAttribute("aria-level", depth + 1);
    group.setAttribute("tabindex", -1);
  }

  // The range that fills the width, and the box that was zoomed to.
  let view = { start: 0, end: all, box: null };
  let focused = boxes[0];

  function cut(name, width) {
    const space = Math.floor((width - 4) / CHARACTER_WIDTH);
    const characters = Array.from(name);
    if (space < 3) return "";
    return characters.length <= space ? name : characters.slice(0, space - 1).join("") + "…";
  }

  function layOut() {
    const width = Math.max((svg.clientWidth || 1200) - 2 * MARGIN, 100);
    const scale = width / Math.max(view.end - view.start, 1);
    for (const box of boxes) {
      const left = (Math.max(box.start, view.start) - view.start) * scale;
      const right = (Math.min(box.end, view.end) - view.start) * scale;
      box.isShown = right - left >= NARROWEST;
      box.group.style.display = box.isShown ? "" : "none";
      if (!box.isShown) continue;
      const isCaller = view.box !== null && box.depth < view.box.depth;
      box.group.classList.toggle("caller", isCaller);
      const gap = right - left > 2 ? 0.5 : 0;
      box.rect.setAttribute("x", (MARGIN + left).toFixed(2));
      box.rect.setAttribute("width", (right - left - gap).toFixed(2));
      box.text.setAttribute("x", (MARGIN + left + 3).toFixed(2));
      box.text.textContent = cut(box.name, right - left);
    }
  }

  function zoom(box) {
    view = box ? { start: box.start, end: box.end, box } : { start: 0, end: all, box: null };
    reset.disabled = view.box === null;
    layOut();
  }

  // Marks the boxes whose name has the text, and shows their share. A box within a marked one adds
  // nothing to the share.
  function mark() {
    const wanted = search.value.trim().toLowerCase();
    let covered = 0;
    let coveredEnd = 0;
    let count = 0;
    for (const box of boxes) {
      const matches = wanted !== "" && box.name.toLowerCase().includes(wanted);
      box.group.classList.toggle("match", matches);
      if (!matches) continue;
      count += 1;
      if (box.start >= coveredEnd) {
        covered += box.end - box.start;
        coveredEnd = box.end;
      }
    }
    const share = ((100 * covered) / Math.max(all, 1)).toFixed(2);
    matched.textContent = wanted === "" ? "" : `${isWhole ? "" : "at least "}${share} % in ${count} boxes`;
  }

  function show(box) {
    details.textContent = box ? box.title.split("\n").join("  |  ") : "";
  }

  function focus(box) {
    if (!box) return;
    focused.group.setAttribute("tabindex", -1);
    focused = box;
    box.group.setAttribute("tabindex", 0);
    box.group.focus();
  }

  function neighbor(box, step) {
    const row = rows[box.depth];
    let place = box.place + step;
    while (row[place] && !row[place].isShown) place += step;
    return row[place];
  }

  function boxOf(target) {
    const group = target.closest?.(".box");
    return group && boxes.find((box) => box.group === group);
  }

  const keys = {
    ArrowDown: (box) => focus(box.callees.find((callee) => callee.isShown)),
    ArrowUp: (box) => focus(box.caller),
    ArrowLeft: (box) => focus(neighbor(box, -1)),
    ArrowRight: (box) => focus(neighbor(box, 1)),
    Enter: (box) => zoom(box),
    " ": (box) => zoom(box),
  };

  svg.addEventListener("click", (event) => {
    const box = boxOf(event.target);
    if (!box) return;
    zoom(box);
    focus(box);
  });
  svg.addEventListener("mouseover", (event) => show(boxOf(event.target) ?? null));
  svg.addEventListener("focusin", (event) => show(boxOf(event.target) ?? null));
  svg.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Escape") {
      if (event.target === search && search.value !== "") {
        search.value = "";
        mark();
      } else {
        zoom(null);
      }
      return;
    }
    if (event.key === "/" && event.target !== search) {
      search.focus();
      event.preventDefault();
      return;
    }
    const box = boxOf(event.target);
    if (!box || !Object.hasOwn(keys, event.key)) return;
    keys[event.key](box);
    event.preventDefault();
  });
  search.addEventListener("input", mark);
  reset.addEventListener("click", () => zoom(null));
  window.addEventListener("resize", layOut);

  svg.setAttribute("width", "100%");
  find("#boxes").setAttribute("role", "tree");
  find("#control-area").setAttribute("visibility", "visible");
  focused?.group.setAttribute("tabindex", 0);
  zoom(null);
})();
