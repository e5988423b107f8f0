// People and channels named inside a text.

import { make } from "./dom.js";
import { channelName, state } from "./state.js";

/** Return a person who is mentioned; oneself stands out. */
export function userMention(id, label = "") {
  const mine = id === state.me;
  const name = state.users.get(id)?.name ?? (label || id);
  return make(mine ? "span.mention.is-me" : "span.mention", {}, `@${name}`);
}

/** Return a channel that is mentioned; one that is known leads there. */
export function channelMention(id, label = "") {
  const channel = state.channels.get(id);
  if (!channel) return make("span.mention", {}, `#${label || id}`);
  const words = channel.kind === "im" ? channelName(channel) : `#${channel.name}`;
  return make("a.mention", { href: `#${id}`, data: { channel: id } }, words);
}
