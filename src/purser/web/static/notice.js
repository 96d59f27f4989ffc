/**
 * The banner above the page: what is wrong with what it shows.
 *
 * It shows the problem that the server reports, such as an API server that does not answer. While the connection to
 * the server is lost it says so instead: what the server last reported is out of date.
 */

const LOST = "The connection to Purser was lost. Reconnecting…";
const banner = document.getElementById("problem");
let problem = banner === null ? "" : banner.textContent.trim();
let connected = true;

function show() {
  const text = connected ? problem : LOST;
  if (banner === null || (banner.textContent.trim() === text && banner.hidden === (text === ""))) {
    return;
  }
  banner.textContent = text;
  banner.hidden = text === "";
}

/** Shows a problem that the server reports; none, if the text is empty. */
export function showProblem(text) {
  problem = text;
  show();
}

/** Says whether the connection to the server stands. */
export function showConnection(isUp) {
  connected = isUp;
  show();
}
