// Links to messages of this workspace lead there, as in Slack's client, and to no other page.

import { warn } from "./announce.js";
import { reveal } from "./reveal.js";
import { messageAt, state } from "./state.js";

// https://docs.slack.dev/reference/methods/chat.getPermalink
const SHAPE = /^https:\/\/sandbox\.slack\.com\/archives\/(\w+)\/p(\d{10})(\d{6})(?:\?|$)/;

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  const [, channel, seconds, rest] = SHAPE.exec(link?.href ?? "") ?? [];
  if (!channel) return;
  event.preventDefault();
  const message = state.channels.has(channel) && messageAt(channel, `${seconds}.${rest}`);
  if (message) reveal(message);
  else warn("You can't see that message, or it does not exist any more.");
});
