// Says to screen readers what others see happen, and shows for a while what went wrong.

import { fill, make, the } from "./dom.js";
import { icon } from "./icons.js";
import { on } from "./state.js";

const SHOWN_MILLISECONDS = 8000;

/** Have words read out. */
export function announce(words) {
  const said = make("p", {}, words);
  the("#announcer").append(said);
  setTimeout(() => said.remove(), SHOWN_MILLISECONDS);
}

// What was said to one person is not for the next.
on("snapshot", () => fill(the("#announcer")));

/** Show and read out what went wrong. */
export function warn(words) {
  const shown = make("div.toast", {});
  the("#warnings").append(shown);
  fill(shown, icon("note"), make("span", {}, words));
  setTimeout(() => shown.remove(), SHOWN_MILLISECONDS);
}
