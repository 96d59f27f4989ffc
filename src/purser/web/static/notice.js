/**
 * The banner above the page: what is wrong with what it shows.
 *
 * It shows the problem that the server reports, such as an API server that does not answer. While the page gets no
 * news from the server it says why instead: what the server last reported is out of date.
 */

const LOST = "The connection to Purser was lost. Reconnecting…";
const banner = document.getElementById("problem");
let problem = banner === null ? "" : banner.textContent.trim();
let connected = true;
let whyNot = LOST;

function show() {
  const text = connected ? problem : whyNot;
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

/** Says whether the server sends news; if not, why, as far as the server has said. */
export function showConnection(isUp, reason = "") {
  connected = isUp;
  whyNot = reason === "" ? LOST : reason;
  show();
}
