/** Keeps every page but the fleet's up to date: fetches it again when the server says that something changed, and those
 * that ask for it every few seconds as well. */

import { morphChildren } from "/static/morph.js";
import { showProblem } from "/static/notice.js";
import { follow } from "/static/stream.js";

const SHORTEST_MS = 2000;
const RETRY_MS = 10000;
const HIDDEN_MS = 5000;
const GONE = "gone-notice";

const main = document.getElementById("main");
let stale = false;
let fetching = false;
let planned = 0;
let last = 0;
let timer = 0;
/** Whether the page may be older than the next connection: what changed while there was none is not reported again. */
let mayBeOld = document.hidden;

function soon(atLeastMs = 0) {
  stale = true;
  if (timer === 0 && !fetching && !document.hidden) {
    const wait = Math.max(atLeastMs, last + SHORTEST_MS - performance.now(), 0);
    timer = setTimeout(refresh, wait);
  }
}

/** Pages on what the stream does not report, such as what the operator does, ask to be fetched again after a while. */
function planNext() {
  clearTimeout(planned);
  const afterMs = Number(main.dataset.refreshMs ?? 0);
  if (afterMs > 0) {
    planned = setTimeout(() => {
      soon();
      planNext();
    }, afterMs);
  }
}

function showGone() {
  if (document.getElementById(GONE) === null) {
    const notice = document.createElement("p");
    notice.id = GONE;
    notice.className = "notice";
    notice.setAttribute("role", "status");
    notice.textContent = "What this page shows no longer exists. Below is its last known state.";
    main.prepend(notice);
  }
}

/** Whether the reader is in the middle of something that new content would break. */
function isBusy() {
  const focus = document.activeElement;
  return focus !== null && main.contains(focus) && focus.nodeName === "SELECT";
}

async function refresh() {
  timer = 0;
  if (document.hidden || isBusy()) {
    soon(SHORTEST_MS);
    return;
  }
  stale = false;
  fetching = true;
  last = performance.now();
  let retryMs = 0;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
    if (answer.status === 404) {
      showGone();
    } else if (answer.redirected) {
      location.reload();
    } else if (answer.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("main");
      if (fresh !== null) {
        morphChildren(main, fresh);
        main.dataset.refreshMs = fresh.dataset.refreshMs ?? "0";
        planNext();
        document.title = page.title;
      }
    } else {
      retryMs = RETRY_MS;
    }
  } catch {
    // The stream tells of a server that is away.
    retryMs = RETRY_MS;
  }
  fetching = false;
  if (stale || retryMs > 0) {
    soon(retryMs);
  }
}

function start() {
  planNext();
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && stale) {
      soon();
    }
  });
  follow(
    "/events?changes",
    { changed: () => soon(), status: (status) => showProblem(status.problem) },
    {
      hiddenMs: HIDDEN_MS,
      opened: () => {
        if (mayBeOld) {
          soon();
        }
        mayBeOld = true;
      },
    },
  );
}

if (main !== null && document.getElementById("fleet") === null) {
  start();
}
