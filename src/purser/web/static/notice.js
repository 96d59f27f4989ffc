/**
 * The banner above the page: what is wrong with what it shows.
 *
 * Two things have a say in it, the server, which may be behind the API server, and this end of the connection.
 * A lost connection hides the server's word: that one is as old as the connection.
 */

const LOST = "The connection to Purser was lost. Reconnecting…";
const banner = document.getElementById("problem");
let told = banner === null ? "" : banner.textContent.trim();
let connected = true;

function show() {
  const text = connected ? told : LOST;
  if (banner === null || (banner.textContent.trim() === text && banner.hidden === (text === ""))) {
    return;
  }
  banner.textContent = text;
  banner.hidden = text === "";
}

/** Shows what the server says is wrong; nothing, if the text is empty. */
export function tellProblem(text) {
  told = text;
  show();
}

/** Says whether the connection to the server stands. */
export function tellConnection(isUp) {
  connected = isUp;
  show();
}
