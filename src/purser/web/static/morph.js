/**
 * Makes one tree of elements the same as another with as few changes as possible.
 *
 * What is not touched keeps its focus, its selected text and how far it is scrolled; `details` stay as the reader
 * left them, and fields keep what was written in them.
 */

const KEPT = new Map([["DETAILS", "open"], ["INPUT", "value"], ["DIALOG", "open"]]);

/** By which an element is known again: its id, or the first link of a table's row. */
function keyOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) {
    return "";
  }
  if (node.id !== "") {
    return `#${node.id}`;
  }
  if (node.nodeName === "TR") {
    const link = node.querySelector("a[href]");
    return link === null ? "" : `a ${link.getAttribute("href")}`;
  }
  return "";
}

function morphAttributes(old, fresh) {
  const kept = KEPT.get(old.nodeName);
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== kept) {
      old.removeAttribute(name);
    }
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== kept && old.getAttribute(name) !== value) {
      old.setAttribute(name, value);
    }
  }
}

function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) {
      old.nodeValue = fresh.nodeValue;
    }
    return;
  }
  morphAttributes(old, fresh);
  morphChildren(old, fresh);
}

/** Gives `parent` the children of `fresh`, an element of another document. */
export function morphChildren(parent, fresh) {
  const keyed = new Map();
  for (const child of parent.childNodes) {
    const key = keyOf(child);
    if (key !== "" && !keyed.has(key)) {
      keyed.set(key, child);
    }
  }
  const wanted = new Set([...fresh.childNodes].map(keyOf));
  let place = parent.firstChild;
  for (const child of fresh.childNodes) {
    const key = keyOf(child);
    // A row that has gone leaves first; otherwise every later row would be moved, and moving an element ends its focus.
    while (place !== null && keyOf(place) !== "" && !wanted.has(keyOf(place))) {
      const gone = place;
      place = place.nextSibling;
      gone.remove();
    }
    let match = null;
    if (key !== "") {
      match = keyed.get(key) ?? null;
      keyed.delete(key);
    } else if (place !== null && keyOf(place) === "") {
      match = place;
    }
    if (match !== null && match.nodeName === child.nodeName) {
      if (match === place) {
        place = place.nextSibling;
      } else {
        parent.insertBefore(match, place);
      }
      morph(match, child);
    } else {
      parent.insertBefore(document.importNode(child, true), place);
      if (key === "" && match !== null) {
        // What stands here became another kind of element; what follows keeps its place.
        place = place.nextSibling;
        match.remove();
      }
    }
  }
  while (place !== null) {
    const gone = place;
    place = place.nextSibling;
    gone.remove();
  }
}
