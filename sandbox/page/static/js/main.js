// Puts the page together: who one is and where, the drawer, and the keys that work everywhere.

import { become } from "./api.js";
import "./reads.js";
import { closeThread } from "./thread.js";
import "./channel.js";
import "./modal.js";
import { refreshDates } from "./dates.js";
import "./first_steps.js";
import { fill, make, the } from "./dom.js";
import "./home.js";
import { icon } from "./icons.js";
import { closePanel } from "./panel.js";
import "./permalinks.js";
import "./sidebar.js";
import { goTo, on, state } from "./state.js";

const DATES_MILLISECONDS = 15_000;
const FIRST_PERSON = "ana";
const page = document.body;

// ── Who ─────────────────────────────────────────────────────────────────────────────────────

function be(name) {
  const address = new URL(location.href);
  address.searchParams.set("as", name);
  history.replaceState(null, "", address);
  become(name);
}

// The address may name somebody who is not here.
on("nobody", () => {
  if (new URL(location.href).searchParams.get("as") !== FIRST_PERSON) be(FIRST_PERSON);
});
the("#people").addEventListener("change", (event) => be(event.target.value));

// ── Where: the address says it, so that it can be gone back to ──────────────────────────────

/** Go where the address says, or to the first channel that the app is in. */
function goByAddress() {
  const [wanted, thread = ""] = decodeURIComponent(location.hash.slice(1)).split("/");
  const all = [...state.channels.values()];
  const asked = all.find(
    (each) => each.id === wanted || (each.kind !== "im" && each.name === wanted),
  );
  const channel = asked ?? all.find((each) => each.has_app && each.kind === "public") ?? all[0];
  if (channel) goTo(channel.id, asked ? thread : "");
}

window.addEventListener("hashchange", goByAddress);
on("snapshot", () => {
  const isFirst = page.classList.contains("is-loading");
  page.classList.remove("is-loading");
  if (!state.channels.has(state.channel)) goByAddress();
  else if (state.thread && !state.messages.get(state.channel)?.has(state.thread))
    goTo(state.channel);
  // What was typed straight away would be lost.
  if (isFirst && document.activeElement === page) the("#composer textarea").focus();
});
on("place", () => {
  const hash = `#${state.channel}${state.thread ? `/${state.thread}` : ""}`;
  if (decodeURIComponent(location.hash) === hash) return;
  const isFirst = !location.hash;
  history[isFirst ? "replaceState" : "pushState"](null, "", hash);
});

// ── The drawer of narrow screens ────────────────────────────────────────────────────────────

const narrow = matchMedia("(max-width: 760px)");

function drawer(open) {
  const isDrawer = narrow.matches;
  page.classList.toggle("drawer-open", isDrawer && open);
  the("#sidebar").inert = isDrawer && !open;
  the("#workspace").inert = isDrawer && open;
  the("#open-sidebar").setAttribute("aria-expanded", String(isDrawer && open));
}

the("#open-sidebar").append(icon("menu"));
the("#open-sidebar").addEventListener("click", () => {
  drawer(true);
  (the("#sidebar .is-here") ?? the("#sidebar button")).focus();
});
the("#drawer-shade").addEventListener("click", closeDrawer);
narrow.addEventListener("change", () => drawer(false));
// Also where one is already.
the("#sidebar").addEventListener("click", (event) => {
  if (event.target.closest(".place")) closeDrawer();
});
on("place", () => page.classList.contains("drawer-open") && closeDrawer());

function closeDrawer() {
  if (!page.classList.contains("drawer-open")) return false;
  drawer(false);
  the("#open-sidebar").focus();
  return true;
}

// ── Everywhere ──────────────────────────────────────────────────────────────────────────────

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || the("dialog[open]")) return;
  const first = the("#thread").contains(event.target) ? closeThread : closePanel;
  if (closeDrawer() || first() || closePanel() || closeThread()) event.preventDefault();
});
on("connection", (isThere, hasEnded) => {
  const words = ["The sandbox has ended. To start it again: ", make("code", {}, state.command)];
  fill(the("#connection"), hasEnded && state.command ? words : "Connecting…");
  the("#connection").hidden = isThere;
});
the(".skip").addEventListener("click", (event) => {
  // The address is for places.
  event.preventDefault();
  the("#composer textarea").focus();
});
the("#thread-close").append(icon("close"));
setInterval(refreshDates, DATES_MILLISECONDS);
drawer(false);
be(new URL(location.href).searchParams.get("as") || FIRST_PERSON);
