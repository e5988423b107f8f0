// Goes to a message and points at it.

import { goTo } from "./state.js";

const POINTED_MILLISECONDS = 2400;

/** Show a message where it stands, and put the focus on it. */
export function reveal({ channel, ts, thread_ts: thread }) {
  goTo(channel, thread ?? "");
  const list = thread ? "#thread-messages" : "#messages";
  const node = document.querySelector(`${list} [data-ts="${CSS.escape(ts)}"]`);
  if (!node) return;
  node.tabIndex = -1;
  node.scrollIntoView({ block: "center" });
  node.focus({ preventScroll: true });
  node.classList.add("is-pointed-at");
  setTimeout(() => node.classList.remove("is-pointed-at"), POINTED_MILLISECONDS);
}
