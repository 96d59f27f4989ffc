/** What the colours and marks of tiles mean. */

import { element } from "/static/fleet_details.js";

const STEPS = ["to 25%", "to 50%", "to 75%", "to 99%", "100%"];
const MARKS = [
  ["Unhealthy", "unhealthy"],
  ["Cordoned", "cordoned"],
  ["Paused", "paused"],
  ["Disputed", "disputed"],
  ["Degraded", "degraded"],
];

function entry(swatch, text) {
  return element("li", {}, element("span", { class: `swatch ${swatch}`, "aria-hidden": "true" }), text);
}

function namespaceEntries(colours) {
  const entries = colours.taken
    .map((name, colour) => ({ name, colour }))
    .filter(({ name }) => name !== null)
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map(({ name, colour }) => {
      const attributes = { type: "button", class: "link", "data-find": name, title: `Find ${name}` };
      const button = element("button", attributes, name);
      return entry(`swatch-namespace-${colour}`, button);
    });
  if (colours.hasOthers) {
    entries.push(entry(`swatch-namespace-${colours.taken.length}`, "others"));
  }
  return entries;
}

/** The legend's entries for what tiles are coloured by, a word of the toolbar. */
export function legendOf(colour, namespaces) {
  const entries = [];
  if (colour === "namespace") {
    entries.push(...namespaceEntries(namespaces));
  } else if (colour === "health") {
    entries.push(entry("swatch-healthy", "healthy, held"));
  } else {
    entries.push(...STEPS.map((text, step) => entry(`swatch-scale-${step}`, text)));
    if (colour === "used") {
      entries.push(entry(`swatch-namespace-${namespaces.taken.length}`, "held, use not known"));
    }
  }
  const tint = colour === "health" ? "tinted" : "plain";
  const marks = MARKS.map(([word, name]) => entry(`mark-${name} ${tint}`, word.toLowerCase()));
  entries.push(entry("swatch-free", "free"), ...marks);
  return entries;
}
