// The short names of emoji that are drawn; any other stays a word between colons.

import { make } from "./dom.js";

const EMOJI = {
  "+1": "👍",
  arrow_forward: "▶️",
  bell: "🔔",
  bulb: "💡",
  clapper: "🎬",
  eyes: "👀",
  grey_question: "❔",
  heart: "❤️",
  hourglass: "⌛",
  hourglass_flowing_sand: "⏳",
  information_source: "ℹ️",
  lock: "🔒",
  memo: "📝",
  microphone: "🎤",
  movie_camera: "🎥",
  no_entry_sign: "🚫",
  question: "❓",
  raised_hand: "✋",
  rocket: "🚀",
  rotating_light: "🚨",
  smile: "😄",
  tada: "🎉",
  thumbsup: "👍",
  turtle: "🐢",
  warning: "⚠️",
  wastebasket: "🗑️",
  wave: "👋",
  white_check_mark: "✅",
  x: "❌",
};

/** Return the emoji of a short name with its name for screen readers, or null if it is not known. */
export function emoji(name) {
  if (!Object.hasOwn(EMOJI, name)) return null;
  const words = name.replaceAll("_", " ");
  return make("span.emoji", { role: "img", "aria-label": words, title: `:${name}:` }, EMOJI[name]);
}

/** Return plain text with the emoji of its short names as characters. */
export function withEmoji(text) {
  return text.replace(/:([a-z0-9_+-]+):/g, (whole, name) =>
    Object.hasOwn(EMOJI, name) ? EMOJI[name] : whole,
  );
}
