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

/** A page whose token is no longer accepted leads to the form for another one. */
async function reloadIfLoggedOut() {
  try {
    const answer = await fetch(location.href, { redirect: "manual", cache: "no-store" });
    if (answer.type === "opaqueredirect") {
      location.reload();
    }
  } catch {
    // There is no connection, which the banner says.
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

  function isUp() {
    clearTimeout(complaint);
    complaint = 0;
    wait = RETRY_MS;
    showConnection(true);
  }

  function isDown() {
    if (complaint === 0) {
      complaint = setTimeout(() => showConnection(false), PATIENCE_MS);
    }
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
        reloadIfLoggedOut();
        retry = setTimeout(open, wait);
        wait = Math.min(wait * 2, LONGEST_RETRY_MS);
      }
    };
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
