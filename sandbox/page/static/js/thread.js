// The thread beside the channel: the message it is about, and its replies.

import { composer } from "./composer.js";
import { make, the } from "./dom.js";
import { messageList } from "./messages.js";
import { channelName, goTo, messageAt, on, repliesTo, state } from "./state.js";

const pane = the("#thread");
const list = messageList(the("#thread-scroller"), the("#thread-messages"), { inThread: true });
const writer = composer(the("#thread-composer"), {
  thread: () => state.thread,
  onSent: () => list.toEnd(),
});
let opener = null;
let shown = "";

function count() {
  const { length } = repliesTo(state.channel, state.thread).filter((each) => !each.is_ephemeral);
  the("#thread-count").textContent = `${length} ${length === 1 ? "reply" : "replies"}`;
}

function show() {
  const channel = state.channels.get(state.channel);
  const parent = state.thread && messageAt(state.channel, state.thread);
  const wasOpen = !pane.hidden;
  const isNew = shown !== `${state.channel}/${state.thread}`;
  shown = `${state.channel}/${state.thread}`;
  pane.hidden = !state.thread || !channel;
  document.body.classList.toggle("has-thread", !pane.hidden);
  if (pane.hidden) {
    if (wasOpen) giveBack();
    return;
  }
  if (!wasOpen) opener = document.activeElement;
  the("#thread-where").textContent = channelName(channel);
  const gone = make("li.message.is-gone", {}, "This message is gone.");
  list.show([...(parent ? [parent] : []), ...repliesTo(state.channel, state.thread)]);
  if (!parent) the("#thread-messages").prepend(gone);
  count();
  writer.moveTo(channel);
  if (isNew) the("#thread-close").focus();
}

/** Give the focus back to what opened the thread. */
function giveBack() {
  const key = opener?.dataset?.key;
  const again = key && document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  const there = opener?.isConnected && opener !== document.body ? opener : again;
  (there || the("#composer textarea")).focus();
  opener = null;
}

/** Close the thread, and say whether one was open. */
export function closeThread() {
  if (!state.thread) return false;
  goTo(state.channel);
  return true;
}

the("#thread-close").addEventListener("click", closeThread);
on("place", () => {
  if (shown !== `${state.channel}/${state.thread}`) show();
});
on("snapshot", show);
on("channels", () => state.thread && writer.moveTo(state.channels.get(state.channel)));
on("message", (message) => {
  if (message.channel !== state.channel || !state.thread) return;
  if (message.thread_ts !== state.thread && message.ts !== state.thread) return;
  list.put(message);
  count();
});
on("deleted", (message) => {
  if (message.channel !== state.channel || !state.thread) return;
  list.remove(message.ts);
  count();
});
