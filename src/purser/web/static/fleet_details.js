/** The panel beside the fleet: the selected GPU, who holds it, and what to ask next. */

import { HEALTH } from "/static/fleet_model.js";

const MOST_PODS = 100;
const COPIED_MS = 2000;
const UNITS = ["MiB", "GiB", "TiB"];
const ONE_DIGIT = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const WHOLE_NUMBERS = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const STATUS = {
  Healthy: "status-ok",
  Degraded: "status-warn",
  Cordoned: "status-warn",
  Paused: "status-warn",
  Disputed: "status-warn",
  Unhealthy: "status-bad",
};

/** Makes an element; children are elements or text, which is never read as HTML. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** An amount of memory for people. */
export function memoryText(mib) {
  let amount = mib;
  let unit = 0;
  while (amount >= 1024 && unit < UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${(amount < 10 && unit > 0 ? ONE_DIGIT : WHOLE_NUMBERS).format(amount)} ${UNITS[unit]}`;
}

/** Two amounts of memory, with one unit if they have the same. */
export function heldText(held, total) {
  const [amount, unit] = memoryText(held).split(" ");
  const whole = memoryText(total);
  return whole.endsWith(unit) ? `${amount} of ${whole}` : `${amount} ${unit} of ${whole}`;
}

/** A word as one argument of a shell. */
function quoted(word) {
  return /^[A-Za-z0-9][A-Za-z0-9._:-]*$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function path(...parts) {
  return `/${parts.map(encodeURIComponent).join("/")}`;
}

async function copy(source) {
  try {
    await navigator.clipboard.writeText(source.textContent);
    return true;
  } catch {
    // Only pages over TLS or of this machine have the clipboard; the old way works on the others.
    const range = document.createRange();
    range.selectNodeContents(source);
    const selection = window.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    return document.execCommand("copy");
  }
}

function command(text) {
  return element(
    "div",
    { class: "command" },
    element("code", {}, text),
    element("button", { type: "button", class: "copy", "aria-label": `Copy: ${text}` }, "Copy"),
  );
}

/** Does what the panel's buttons are for; one listener, because the panel's content is made again and again. */
export function listenTo(panel, close) {
  panel.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (button === null) {
      return;
    }
    if (button.classList.contains("close")) {
      close();
    } else if (button.classList.contains("copy")) {
      button.textContent = (await copy(button.previousElementSibling)) ? "Copied" : "Selected";
      setTimeout(() => {
        button.textContent = "Copy";
      }, COPIED_MS);
    }
  });
}

function podRows(gpu) {
  return gpu.state.pods.slice(0, MOST_PODS).map(([namespace, pod, memory, cores]) => {
    const name =
      pod === ""
        ? "others, which you may not see"
        : element("a", { href: path("pods", namespace, pod) }, `${namespace}/${pod}`);
    return element(
      "tr",
      {},
      element("td", {}, name),
      element("td", { class: "number" }, memory > 0 ? memoryText(memory) : "–"),
      element("td", { class: "number" }, cores > 0 ? `${cores}%` : "–"),
    );
  });
}

function podsOf(gpu) {
  if (gpu.state.pods.length === 0) {
    return element("p", { class: "hint" }, "No pod holds any part of it.");
  }
  const head = element(
    "tr",
    {},
    element("th", { scope: "col" }, "Pod"),
    element("th", { scope: "col", class: "number" }, "Memory"),
    element("th", { scope: "col", class: "number" }, "Compute"),
  );
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...podRows(gpu)));
  const rest = gpu.state.pods.length - MOST_PODS;
  const more = rest > 0 ? [element("p", {}, element("a", { href: path("gpus", gpu.uuid) }, `${rest} more pods`))] : [];
  return element("div", {}, element("div", { class: "scroll" }, table), ...more);
}

/** What is known of a GPU or a MIG device; a GPU with devices holds nothing by itself. */
function facts(gpu, hasDevices, used) {
  const { state } = gpu;
  const rows = [];
  const add = (term, ...content) => rows.push(element("dt", {}, term), element("dd", {}, ...content));
  add(gpu.parent === "" ? "GPU" : "Device", element("a", { href: path("gpus", gpu.uuid), class: "uuid" }, gpu.uuid));
  add("Model", gpu.model === "" ? "unknown" : gpu.model);
  const word = element("span", { class: STATUS[state.health] ?? "status-bad" }, state.health);
  add("Health", word, state.reason === "" ? "" : `: ${state.reason}`);
  if (hasDevices) {
    return element("dl", { class: "facts" }, ...rows);
  }
  add("Memory", gpu.memory_mib > 0 ? heldText(state.memory_mib, gpu.memory_mib) : "unknown");
  const share = used.get(gpu.uuid);
  if (share !== undefined) {
    add("In use", `${share}% of the memory held`);
  }
  add("Compute", gpu.cores_percent > 0 ? `${state.cores_percent} of ${gpu.cores_percent}%` : "unknown");
  add("Shares", `${state.slots} of ${gpu.slots} (${gpu.mode})`);
  return element("dl", { class: "facts" }, ...rows);
}

/** The GPU that a GPU or MIG device is, or is a part of. */
function cardName({ index, uuid, parent }) {
  return `GPU ${index >= 0 ? index : parent || uuid}`;
}

/** What of a tile the panel shows, in one sentence. */
export function sentenceOf(fleet, tile) {
  const node = fleet.owners[tile];
  const gpu = fleet.gpuOf(tile);
  const pods = fleet.members[tile].reduce((sum, position) => sum + node.gpus[position].state.pods.length, 0);
  const held = fleet.memoryTotal[tile] > 0 ? "of its memory" : "of it";
  const name = `${cardName(gpu)}${gpu.parent === "" ? "" : " with MIG devices"}`;
  return (
    `${name} of ${node.name}, ${gpu.model}, ${HEALTH[fleet.health[tile]]}. ` +
    `${fleet.memoryPercent[tile]}% ${held} held by ${pods} ${pods === 1 ? "pod" : "pods"}.`
  );
}

/** The panel's content for a tile. */
export function detailsOf(fleet, tile) {
  const node = fleet.owners[tile];
  const members = fleet.members[tile].map((position) => node.gpus[position]);
  const devices = members.filter((gpu) => gpu.parent !== "");
  const card = members[0].parent === "" ? members[0] : null;
  const button = element("button", { type: "button", class: "close", "aria-label": "Clear the selection" }, "×");
  const title = cardName(members[0]);
  const parts = [element("div", { class: "details-head" }, element("h2", {}, title), button)];
  const link = element("a", { href: path("nodes", node.name) }, node.name);
  const work = node.maintenance === "" ? "" : ` (${node.maintenance})`;
  parts.push(element("p", {}, "On node ", link, node.cordoned ? `, which is cordoned${work}.` : `${work}.`));
  if (card !== null) {
    parts.push(facts(card, devices.length > 0, fleet.used));
    if (devices.length === 0 || card.state.pods.length > 0) {
      parts.push(podsOf(card));
    }
  }
  for (const gpu of devices) {
    parts.push(element("h3", {}, `MIG device ${gpu.profile}`.trim()), facts(gpu, false, fleet.used), podsOf(gpu));
  }
  parts.push(
    element("h3", {}, "Ask the cluster"),
    command(`kubectl purser get gpus --node ${quoted(node.name)}`),
    command(`kubectl describe node ${quoted(node.name)}`),
  );
  return parts;
}
