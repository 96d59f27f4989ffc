/**
 * A stream of server-sent events that lasts as long as the page is looked at.
 *
 * A browser opens about six HTTP/1.1 connections to one server, and a stream occupies one. Tabs in the background
 * therefore give theirs back; otherwise the seventh tab would never load.
 */

import { showConnection } from "/static/notice.js";

const RETRY_MS = 3000;
const LONGEST_RETRY_MS = 30000;
/** How long a cut may last before the page says so: a reconnect at once is no news. */
const PATIENCE_MS = 1500;

/**
 * How long a page whose stream the server has given to another page waits before it comes back, and takes the place
 * of the oldest one in turn. Some time at random, so that many do not come at once; twice as long each time it is
 * displaced again soon.
 */
const REST_MS = 30000;
const LONGEST_REST_MS = 300000;
const SILENT = "Purser answers, but does not send updates. Trying again…";

/** Why the server sends no events; empty: it cannot be reached. A page that is logged out leads to the form. */
async function askWhy() {
  try {
    const answer = await fetch(location.href, { redirect: "manual", cache: "no-store" });
    if (answer.type === "opaqueredirect") {
      location.reload();
    } else if (answer.ok || answer.status === 404) {
      return SILENT;
    }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    // What a proxy says of a server that is away has no such element.
    return page.querySelector("#main > p")?.textContent ?? "";
  } catch {
    return "";
  }
}

/**
 * Follows the events of url.
 *
 * @param {string} url
 * @param {Object<string, function(Object): void>} handlers what to do with the data of each event
 * @param {{hiddenMs: number, opened?: function(): void}} options how long a hidden page keeps its stream; what to do
 *   at each connection
 */
export function follow(url, handlers, { hiddenMs, opened = () => {} }) {
  let source = null;
  let retry = 0;
  let complaint = 0;
  let leaving = 0;
  let wait = RETRY_MS;
  let rest = REST_MS;
  let openedAt = -Infinity;

  function isUp() {
    clearTimeout(complaint);
    complaint = 0;
    wait = RETRY_MS;
    openedAt = performance.now();
    showConnection(true);
  }

  function isDown() {
    if (complaint === 0) {
      complaint = setTimeout(() => showConnection(false), PATIENCE_MS);
    }
  }

  async function sayWhy() {
    const reason = await askWhy();
    if (source === null && reason !== "") {
      clearTimeout(complaint);
      complaint = -1;
      showConnection(false, reason);
    }
  }

  /** Another page has the place: this one says so, and rests. */
  function isDisplaced({ reason }) {
    close();
    rest = performance.now() - openedAt > LONGEST_REST_MS ? REST_MS : Math.min(2 * rest, LONGEST_REST_MS);
    retry = setTimeout(open, rest * (0.5 + Math.random() / 2));
    showConnection(false, reason);
  }

  function close() {
    clearTimeout(retry);
    clearTimeout(complaint);
    retry = 0;
    complaint = 0;
    if (source !== null) {
      source.close();
      source = null;
    }
  }

  function open() {
    close();
    const stream = new EventSource(url);
    source = stream;
    stream.onopen = () => {
      isUp();
      opened();
    };
    stream.onerror = () => {
      isDown();
      // After an answer that is no stream, say of a proxy without its server, EventSource does not try again.
      if (stream.readyState === EventSource.CLOSED && source === stream) {
        source = null;
        sayWhy();
        retry = setTimeout(open, wait);
        wait = Math.min(wait * 2, LONGEST_RETRY_MS);
      }
    };
    stream.addEventListener("displaced", (event) => isDisplaced(JSON.parse(event.data)));
    for (const [name, handle] of Object.entries(handlers)) {
      stream.addEventListener(name, (event) => handle(JSON.parse(event.data)));
    }
  }

  document.addEventListener("visibilitychange", () => {
    clearTimeout(leaving);
    if (document.hidden) {
      leaving = setTimeout(close, hiddenMs);
    } else if (source === null) {
      open();
    }
  });
  // A page that the browser keeps for its back button must not hold a connection either.
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) {
      open();
    }
  });
  if (document.hidden) {
    return;
  }
  open();
}
