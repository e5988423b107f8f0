// The channel in the middle: its head, its messages, and what arrives while one looks at it.

import { announce } from "./announce.js";
import { composer } from "./composer.js";
import { fill, make, the } from "./dom.js";
import { withEmoji } from "./emoji.js";
import { icon } from "./icons.js";
import { messageList } from "./messages.js";
import { unescape } from "./mrkdwn.js";
import { authorName, channelName, isInChannel, messagesIn, on, state } from "./state.js";

const LONGEST_SAID = 200;
const SIGNS = { public: "hash", private: "lock" };

const list = messageList(the("#messages-scroller"), the("#messages"), { inThread: false });
const newer = the("#newer");
const writer = composer(the("#composer"), {
  thread: () => "",
  onSent: () => list.toEnd(),
});
let missed = 0;
let shown = "";

/** Write the head; in the app's direct message the tabs of App Home get their place here. */
function head(channel) {
  const sign = SIGNS[channel.kind];
  fill(the("#channel-name"), sign && icon(sign), make("span", {}, channelName(channel)));
  the("#channel-about").textContent =
    channel.kind === "im"
      ? "Only the two of you see this."
      : `${channel.members.length} members${channel.has_app ? "" : ` · ${state.app.name} is not a member`}`;
}

function show() {
  const channel = state.channels.get(state.channel);
  if (!channel) return;
  shown = `${state.me}/${state.channel}`;
  head(channel);
  document.title = `${channelName(channel)} · Sandbox`;
  the("#messages").setAttribute("aria-label", `Messages in ${channelName(channel)}`);
  miss(0);
  const messages = messagesIn(channel.id);
  list.show(messages);
  the("#empty").hidden = messages.length > 0;
  writer.moveTo(channel);
}

/** Say how many messages came while the reader was further up. */
function miss(count) {
  missed = count;
  newer.hidden = !count;
  fill(newer, `${count} new ${count === 1 ? "message" : "messages"}`, icon("down"));
}

/** Return what is read out of a message: its text, without markup. */
export function spoken(message) {
  const text = message.text
    .replace(/<@(\w+)[^>]*>/g, (_, id) => `@${state.users.get(id)?.name ?? id}`)
    .replace(/<(?!!date)[^>|]*\|([^>]+)>/g, "$1")
    .replace(/<!date[^>|]*\|([^>]+)>/g, "$1");
  return withEmoji(unescape(text)).slice(0, LONGEST_SAID);
}

newer.addEventListener("click", () => list.toEnd());
list.whenAtEnd(() => miss(0));

on("place", () => {
  if (shown !== `${state.me}/${state.channel}`) show();
});
on("snapshot", show);
on("channels", () => {
  const channel = state.channels.get(state.channel);
  if (!channel) return;
  head(channel);
  writer.moveTo(channel);
});
on("message", (message, before) => {
  if (message.channel !== state.channel) return;
  if (message.thread_ts) list.refreshReplies(message.channel, message.thread_ts);
  if (isInChannel(message)) {
    the("#empty").hidden = true;
    const wasAtEnd = list.isAtEnd();
    list.put(message);
    if (!before && !wasAtEnd) miss(missed + 1);
  }
  const isHere = isInChannel(message) || message.thread_ts === state.thread;
  if (!before && isHere && message.user !== state.me) {
    announce(`${authorName(message)}: ${spoken(message)}`);
  }
});
on("deleted", (message) => {
  if (message.channel !== state.channel) return;
  if (message.thread_ts) list.refreshReplies(message.channel, message.thread_ts);
  if (isInChannel(message)) list.remove(message.ts);
});
on("unread", () => {
  if (state.thread) list.refreshReplies(state.channel, state.thread);
});
