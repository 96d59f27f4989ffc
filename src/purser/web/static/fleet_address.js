/** The view in the address, so that it can be sent to others and is there after a reload. */

import { LABEL_GROUP } from "/static/fleet_model.js";

const WAIT_MS = 250;
const CHOICES = {
  group: ["node", "none", "model", "namespace"],
  colour: ["memory", "compute", "used", "health", "namespace"],
  health: ["", "Healthy", "Degraded", "Cordoned", "Paused", "Unhealthy", "Disputed"],
};
let timer = 0;

/** The view that the address asks for; the first choice of each, where it says nothing that is known. */
export function readView() {
  const query = new URLSearchParams(location.search);
  const view = { find: query.get("find") ?? "", gpu: query.get("gpu") ?? "" };
  for (const [name, words] of Object.entries(CHOICES)) {
    const word = query.get(name) ?? "";
    const isLabel = name === "group" && word.startsWith(LABEL_GROUP);
    view[name] = isLabel || words.includes(word) ? word : words[0];
  }
  return view;
}

/** Writes a view into the address, soon: browsers refuse many changes in a short time. */
export function writeView(view) {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const query = new URLSearchParams();
    for (const name of ["group", "colour", "find", "health", "gpu"]) {
      if (view[name] !== "" && view[name] !== CHOICES[name]?.[0]) {
        query.set(name, view[name]);
      }
    }
    const text = query.toString();
    history.replaceState(null, "", text === "" ? location.pathname : `?${text}`);
  }, WAIT_MS);
}
