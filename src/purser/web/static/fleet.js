/** The page of the fleet: what the server tells goes into the model, and what of it is looked at onto the canvas. */

import { readView, writeView } from "/static/fleet_address.js";
import { detailsOf, heldText, listenTo, sentenceOf } from "/static/fleet_details.js";
import { Painter, Theme } from "/static/fleet_draw.js";
import { arrange } from "/static/fleet_layout.js";
import { legendOf } from "/static/fleet_legend.js";
import { Fleet, HEALTH, LABEL_GROUP, NamespaceColours, UNKNOWN } from "/static/fleet_model.js";
import { morphChildren } from "/static/morph.js";
import { showProblem } from "/static/notice.js";
import { follow } from "/static/stream.js";

const TICK_MS = 1000;
/** While a fleet arrives, tiles are numbered anew this often. */
const NUMBER_MS = 250;
/** After a reconnect the old picture stays this long, or until as many GPUs have arrived. */
const HOLD_MS = 2000;
const FIND_MS = 150;
const HIDDEN_MS = 60000;
const USED_MS = 60000;
const USED_RETRY_MS = 3000;
const SMALLEST_TILE = matchMedia("(pointer: coarse)").matches ? 22 : 14;
const LARGEST_TILE = 280;
const NUMBERS = new Intl.NumberFormat("en");

const byId = (id) => document.getElementById(id);
const canvas = byId("tiles");
const scroller = byId("scroller");
const spacer = byId("spacer");
const windowed = byId("window");
const cursor = byId("cursor");
const tip = byId("tip");
const toolbar = byId("toolbar");
const detailsBody = byId("details-body");
const details = byId("details");

const fleet = new Fleet();
const namespaces = new NamespaceColours();
const painter = new Painter(canvas, new Theme(document.documentElement));
const view = readView();
const hint = detailsBody.firstElementChild;

let layout = arrange([], { width: 1, height: 1, smallest: SMALLEST_TILE, largest: LARGEST_TILE, hasHeadings: false });
let order = new Int32Array(0);
/** Where each tile stands in `order`; -1: it is filtered out. */
let slots = new Int32Array(0);
let headings = [];
let selected = -1;
let mustShowSelected = view.gpu !== "";
let isLayoutStale = true;
let frameRequest = 0;
let numberedAt = -Infinity;
let numbering = 0;
let heldUntil = 0;
let heldFor = 0;
let hasArrived = false;
let detailsStale = true;
let detailsVersion = -1;
let detailsTile = -2;
let legendFor = "";
let asking = 0;
const dirty = new Set();
const dirtyGroups = new Set();
/** Tiles that changed since the last tick: they may belong elsewhere now. */
const moved = new Set();

// --- what the server tells

function changed(tiles) {
  for (const tile of tiles) {
    dirty.add(tile);
    moved.add(tile);
    if (tile === selected) {
      detailsStale = true;
    }
  }
  requestFrame();
}

function reset() {
  heldFor = fleet.gpuCount;
  heldUntil = performance.now() + HOLD_MS;
  fleet.clear();
  setTimeout(requestFrame, HOLD_MS);
}

function setText(element, text) {
  if (element !== null && element.textContent !== text) {
    element.textContent = text;
  }
}

function showShare(name, held, total, amount) {
  const part = total > 0 ? held / total : 0;
  const shown = total > 0 ? `${Math.floor(100 * part)}% · ${amount}` : "–";
  setText(document.querySelector(`[data-share="${name}"]`), shown);
  document.querySelector(`[data-meter="${name}"]`).value = part;
}

function showStatus(status) {
  showProblem(status.problem);
  for (const element of document.querySelectorAll("[data-count]")) {
    setText(element, NUMBERS.format(status[element.dataset.count] ?? 0));
  }
  for (const element of document.querySelectorAll("[data-alarm], [data-notice]")) {
    element.classList.toggle("is-raised", (status[element.dataset.alarm ?? element.dataset.notice] ?? 0) > 0);
  }
  const { memory_held_mib: memoryHeld, memory_mib: memory } = status;
  const { cores_held_percent: coresHeld, cores_percent: cores } = status;
  showShare("memory", memoryHeld, memory, heldText(memoryHeld, memory));
  const gpus = (percent) => NUMBERS.format(Math.round(percent / (cores < 10000 ? 10 : 100)) / (cores < 10000 ? 10 : 1));
  showShare("compute", coresHeld, cores, `${gpus(coresHeld)} of ${gpus(cores)} GPUs`);
  // The first numbers come before the tiles.
  hasArrived ||= fleet.gpuCount >= status.gpus;
  requestFrame();
}

/** Asks what is in use, as long as tiles show it: that is not among the events. */
async function askUsed() {
  clearTimeout(asking);
  if (view.colour !== "used") {
    return;
  }
  let wait = USED_MS;
  if (!document.hidden) {
    try {
      const answer = await fetch("/used", { cache: "no-store" });
      const known = answer.ok ? await answer.json() : { gpus: [], is_read: true, problem: "" };
      fleet.applyUsed(known.gpus);
      setText(byId("used-problem"), known.problem);
      byId("used-problem").hidden = known.problem === "";
      wait = known.is_read || known.problem !== "" ? USED_MS : USED_RETRY_MS;
    } catch {
      // The stream tells of a server that is away.
    }
    painter.invalidate();
    headings = [];
    detailsStale = true;
    requestFrame();
  }
  clearTimeout(asking);
  asking = setTimeout(askUsed, wait);
}

// --- from the model to the canvas

function words() {
  return view.find.toLowerCase().split(/\s+/).filter((word) => word !== "");
}

function healthFilter() {
  return HEALTH.indexOf(view.health);
}

function isFiltered() {
  return view.find.trim() !== "" || view.health !== "";
}

/** Numbers tiles anew, if that is due; answers whether it still has to be done. */
function numberTiles(now) {
  const isHeld = fleet.gpuCount < heldFor && now < heldUntil;
  // The first tiles are shown at once.
  if (isHeld || (fleet.count > 0 && now - numberedAt < NUMBER_MS)) {
    return true;
  }
  fleet.number();
  heldFor = 0;
  const took = performance.now() - now;
  numberedAt = now + 3 * took;
  dirty.clear();
  moved.clear();
  selected = view.gpu === "" ? -1 : fleet.tileOf(view.gpu);
  detailsStale = true;
  isLayoutStale = true;
  refreshColours();
  return false;
}

/** Labels of nodes by which tiles can be grouped, in the toolbar. */
function offerLabels() {
  const select = toolbar.elements.group;
  const known = new Set([...select.options].map((option) => option.value));
  const groups = [...fleet.topologyKeys].sort().map((key) => LABEL_GROUP + key);
  if (view.group.startsWith(LABEL_GROUP)) {
    groups.push(view.group);
  }
  for (const group of groups) {
    if (!known.has(group)) {
      known.add(group);
      select.add(new Option(`label ${group.slice(LABEL_GROUP.length)}`, group));
    }
  }
  select.value = view.group;
}

function layOut() {
  const chosen = fleet.select(view.group, words(), healthFilter());
  order = chosen.order;
  slots = new Int32Array(fleet.count).fill(-1);
  for (let slot = 0; slot < order.length; slot += 1) {
    slots[order[slot]] = slot;
  }
  const { clientWidth: width, clientHeight: height } = scroller;
  layout = arrange(chosen.groups, {
    width,
    height,
    smallest: SMALLEST_TILE,
    largest: LARGEST_TILE,
    hasHeadings: view.group !== "none",
  });
  spacer.style.height = `${Math.max(layout.height, height)}px`;
  windowed.style.height = `${height}px`;
  painter.resize(width, height, window.devicePixelRatio || 1);
  painter.invalidate();
  headings = [];
  isLayoutStale = false;
  showMatches();
  if (mustShowSelected && selected >= 0) {
    mustShowSelected = false;
    scrollTo(selected);
  }
}

function showMatches() {
  const count = `${NUMBERS.format(order.length)} of ${NUMBERS.format(fleet.count)} GPUs`;
  setText(byId("match-count"), isFiltered() ? count : "");
  const find = view.find.trim();
  const link = byId("find-waiting");
  link.hidden = find === "";
  link.href = `/waiting?${new URLSearchParams({ find })}`;
  const filter = Object.entries({ find, health: view.health }).filter(([, value]) => value !== "");
  byId("as-table").href = filter.length > 0 ? `/nodes?${new URLSearchParams(filter)}` : "/nodes";
  const empty = byId("empty");
  let text = "";
  if (order.length === 0) {
    text = fleet.count > 0 ? "No GPU matches, nor does any pod that holds one." : "No node lists a GPU.";
    text = hasArrived ? text : "Loading the fleet…";
  }
  setText(empty, text);
  empty.hidden = text === "";
}

function headingOf(group) {
  const { first, count, label } = layout.groups[group];
  let held = 0;
  let total = 0;
  let percents = 0;
  let unhealthy = 0;
  let usedOf = 0;
  let used = 0;
  const isCompute = view.colour === "compute";
  for (let slot = first; slot < first + count; slot += 1) {
    const tile = order[slot];
    held += fleet.memoryHeld[tile];
    total += fleet.memoryTotal[tile];
    percents += isCompute ? fleet.computePercent[tile] : fleet.memoryPercent[tile];
    if (fleet.usedPercent[tile] !== UNKNOWN) {
      usedOf += fleet.memoryHeld[tile];
      used += fleet.memoryHeld[tile] * fleet.usedPercent[tile];
    }
    unhealthy += Number(HEALTH[fleet.health[tile]] === "Unhealthy");
  }
  const width = layout.groupWidth[group];
  const part = !isCompute && total > 0 ? (100 * held) / total : percents / count;
  const usedText = usedOf > 0 ? `${Math.floor(used / usedOf)}% of held in use` : "use not known";
  const amounts = [view.colour === "used" ? usedText : `${Math.floor(part)}%`];
  const more = [`${NUMBERS.format(count)} ${count === 1 ? "GPU" : "GPUs"}`];
  if (!isCompute && total > 0) {
    more.unshift(heldText(held, total));
  }
  for (const text of more) {
    amounts.push(`${amounts.at(-1)} · ${text}`);
  }
  let alarm = "";
  if (unhealthy > 0 && view.health !== "Unhealthy") {
    alarm = width >= 420 ? `${unhealthy} unhealthy` : `!${unhealthy}`;
  }
  return { label, amounts, alarm };
}

/** Counts anew what the groups of tiles hold; those that read differently are painted again. */
function refreshHeadings(tiles) {
  if (layout.head === 0) {
    return;
  }
  const groups = new Set();
  for (const tile of tiles) {
    if (slots[tile] >= 0) {
      groups.add(layout.groupOf(slots[tile]));
    }
  }
  for (const group of groups) {
    const old = headings[group];
    if (old !== undefined) {
      headings[group] = headingOf(group);
      if (old.amounts.at(-1) !== headings[group].amounts.at(-1) || old.alarm !== headings[group].alarm) {
        dirtyGroups.add(group);
      }
    }
  }
}

function refreshColours() {
  if (namespaces.update(fleet) && view.colour === "namespace") {
    painter.invalidate();
  }
  const shown = [view.colour, ...(view.colour === "namespace" ? [...namespaces.taken, namespaces.hasOthers] : [])];
  const key = shown.join("\n");
  if (key !== legendFor) {
    legendFor = key;
    byId("legend").replaceChildren(...legendOf(view.colour, namespaces));
  }
}

/** Once a second: what need not be right at once. */
function tick() {
  if (document.hidden || moved.size === 0) {
    return;
  }
  if (isFiltered() || view.group === "namespace" || view.group.startsWith(LABEL_GROUP)) {
    const filter = words();
    const health = healthFilter();
    for (const tile of moved) {
      const slot = slots[tile];
      const belongs = fleet.matches(tile, filter, health);
      const isAstray =
        belongs !== slot >= 0 ||
        (belongs && fleet.groupKey(tile, view.group) !== layout.groups[layout.groupOf(slot)].key);
      if (isAstray) {
        isLayoutStale = true;
        break;
      }
    }
  }
  if (!isLayoutStale) {
    refreshHeadings(moved);
  }
  moved.clear();
  refreshColours();
  requestFrame();
}

function requestFrame() {
  if (frameRequest === 0) {
    frameRequest = requestAnimationFrame(frame);
  }
}

function frame(now) {
  frameRequest = 0;
  if (fleet.isStale && numberTiles(now)) {
    clearTimeout(numbering);
    numbering = setTimeout(requestFrame, NUMBER_MS);
  }
  if (isLayoutStale) {
    layOut();
  }
  const shown = {
    fleet,
    layout,
    order,
    slots,
    namespaces,
    colour: view.colour,
    isByNode: view.group === "node",
    heading: (group) => (headings[group] ??= headingOf(group)),
  };
  painter.paint(shown, scroller.scrollTop, dirty, dirtyGroups);
  dirty.clear();
  dirtyGroups.clear();
  placeCursor();
  if (detailsStale) {
    showDetails();
  }
}

// --- the selected GPU

function placeCursor() {
  const slot = selected < 0 ? -1 : slots[selected];
  cursor.hidden = slot < 0;
  if (slot >= 0) {
    const { x, y } = layout.placeOf(slot);
    const size = layout.pitch - layout.gap;
    cursor.style.transform = `translate(${x}px, ${y - scroller.scrollTop}px)`;
    cursor.style.width = `${size}px`;
    cursor.style.height = `${size}px`;
  }
}

function showDetails() {
  detailsStale = false;
  details.classList.toggle("is-empty", selected < 0);
  if (selected < 0) {
    if (view.gpu !== "" && hasArrived) {
      hint.textContent = `The fleet does not have GPU ${view.gpu}, or no longer has it.`;
    } else {
      hint.textContent = "Select a GPU to see who holds it.";
    }
    detailsBody.replaceChildren(hint);
    setText(byId("announcement"), "");
  } else if (detailsTile === selected && detailsVersion === fleet.version) {
    const fresh = document.createElement("div");
    fresh.append(...detailsOf(fleet, selected));
    morphChildren(detailsBody, fresh);
  } else {
    detailsBody.replaceChildren(...detailsOf(fleet, selected));
    if (detailsTile !== selected) {
      setText(byId("announcement"), sentenceOf(fleet, selected));
    }
  }
  detailsTile = selected;
  detailsVersion = fleet.version;
}

function select(tile) {
  selected = tile;
  view.gpu = tile < 0 ? "" : fleet.uuidOf(tile);
  detailsStale = true;
  writeView(view);
  requestFrame();
}

function scrollTo(tile) {
  const slot = slots[tile];
  if (slot < 0) {
    return;
  }
  const { y } = layout.placeOf(slot);
  const { scrollTop, clientHeight } = scroller;
  const above = y - layout.head;
  const below = y + layout.pitch;
  if (above < scrollTop) {
    scroller.scrollTop = above;
  } else if (below > scrollTop + clientHeight) {
    scroller.scrollTop = below - clientHeight + layout.gap;
  }
}

function openSelected() {
  if (selected >= 0) {
    location.assign(`/gpus/${encodeURIComponent(fleet.uuidOf(selected))}`);
  }
}

// --- what the viewer does

/** The slot at a point of the window. */
function slotAt(event) {
  const { left, top } = canvas.getBoundingClientRect();
  return layout.slotAt(event.clientX - left, event.clientY - top + scroller.scrollTop);
}

function showTip(event) {
  const slot = event.pointerType === "mouse" ? slotAt(event) : -1;
  tip.hidden = slot < 0;
  if (slot < 0) {
    return;
  }
  setText(tip, sentenceOf(fleet, order[slot]));
  const box = canvas.getBoundingClientRect();
  const x = event.clientX - box.left;
  const y = event.clientY - box.top;
  const left = Math.max(0, Math.min(x + 14, box.width - tip.offsetWidth - 4));
  const top = y + 22 + tip.offsetHeight > box.height ? y - tip.offsetHeight - 10 : y + 18;
  tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}

function firstInView() {
  for (let slot = 0; slot < order.length; slot = layout.vertical(slot, 1)) {
    if (layout.placeOf(slot).y >= scroller.scrollTop || layout.vertical(slot, 1) === slot) {
      return slot;
    }
  }
  return -1;
}

function stepBy(key) {
  const slot = selected < 0 ? -1 : slots[selected];
  const last = order.length - 1;
  if (key === "Home" || key === "End") {
    return key === "Home" ? 0 : last;
  }
  if (slot < 0) {
    return firstInView();
  }
  switch (key) {
    case "ArrowLeft":
      return Math.max(0, slot - 1);
    case "ArrowRight":
      return Math.min(last, slot + 1);
    default:
      return layout.vertical(slot, key === "ArrowUp" ? -1 : 1);
  }
}

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) {
    return;
  }
  if (event.key === "Enter") {
    openSelected();
  } else if (event.key === "Escape") {
    select(-1);
  } else if (/^(Arrow(Left|Right|Up|Down)|Home|End)$/.test(event.key)) {
    event.preventDefault();
    if (order.length > 0) {
      const slot = stepBy(event.key);
      select(order[slot]);
      scrollTo(selected);
    }
  }
}

function onPageKey(event) {
  const isTyping = event.target.closest("input, select, textarea") !== null;
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.altKey && !event.metaKey) {
    event.preventDefault();
    toolbar.elements.find.focus();
    toolbar.elements.find.select();
  }
}

function setView(change) {
  const isOtherColour = change.colour !== undefined;
  const isColourOnly = Object.keys(change).every((name) => name === "colour");
  Object.assign(view, change);
  for (const name of ["group", "colour", "health", "find"]) {
    if (toolbar.elements[name].value !== view[name]) {
      toolbar.elements[name].value = view[name];
    }
  }
  writeView(view);
  refreshColours();
  painter.invalidate();
  headings = [];
  if (!isColourOnly) {
    isLayoutStale = true;
    scroller.scrollTop = 0;
    mustShowSelected = selected >= 0;
  }
  requestFrame();
  if (isOtherColour) {
    byId("used-problem").hidden = true;
    askUsed();
  }
}

function readToolbar() {
  const change = {};
  for (const name of ["group", "colour", "health", "find"]) {
    const { value } = toolbar.elements[name];
    if (value !== view[name]) {
      change[name] = value;
    }
  }
  if (Object.keys(change).length > 0) {
    setView(change);
  }
}

function listen() {
  let finding = 0;
  toolbar.addEventListener("change", readToolbar);
  toolbar.addEventListener("input", () => {
    clearTimeout(finding);
    finding = setTimeout(readToolbar, FIND_MS);
  });
  toolbar.addEventListener("submit", (event) => {
    event.preventDefault();
    readToolbar();
  });
  toolbar.elements.find.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      setView({ find: "" });
    }
  });
  byId("summary").addEventListener("click", (event) => {
    const link = event.target.closest("[data-health]");
    if (link !== null && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      const { health } = link.dataset;
      setView({ health: view.health === health ? "" : health });
    }
  });
  byId("legend").addEventListener("click", (event) => {
    const button = event.target.closest("[data-find]");
    if (button !== null) {
      const name = button.dataset.find;
      setView({ find: view.find === name ? "" : name });
    }
  });
  scroller.addEventListener("scroll", () => {
    tip.hidden = true;
    requestFrame();
  }, { passive: true });
  canvas.addEventListener("click", (event) => {
    const slot = slotAt(event);
    select(slot < 0 ? -1 : order[slot]);
  });
  canvas.addEventListener("dblclick", openSelected);
  canvas.addEventListener("pointermove", showTip);
  canvas.addEventListener("pointerleave", () => {
    tip.hidden = true;
  });
  canvas.addEventListener("keydown", onKey);
  document.addEventListener("keydown", onPageKey);
  listenTo(detailsBody, () => {
    select(-1);
    canvas.focus({ preventScroll: true });
  });
  const resized = () => {
    isLayoutStale = true;
    requestFrame();
  };
  new ResizeObserver(resized).observe(scroller);
  window.addEventListener("resize", resized);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    painter.setTheme(new Theme(document.documentElement));
    requestFrame();
  });
}

if (![...toolbar.elements.colour.options].some(({ value }) => value === view.colour)) {
  view.colour = "memory";
}
offerLabels();
setView({ ...view });
listen();
setInterval(tick, TICK_MS);
follow(
  "/events",
  {
    reset,
    nodes: (event) => {
      changed(fleet.applyNodes(event));
      offerLabels();
    },
    gpus: (event) => changed(fleet.applyGpus(event)),
    status: showStatus,
  },
  { hiddenMs: HIDDEN_MS },
);
