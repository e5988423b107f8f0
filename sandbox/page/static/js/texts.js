// Text objects of Block Kit: plain text, letter for letter, or mrkdwn.

import { withEmoji } from "./emoji.js";
import { mrkdwn } from "./mrkdwn.js";

/** Return plain text as it reads. @param {{text: string, emoji?: boolean}} object */
export function plainText(object) {
  if (!object) return "";
  return object.emoji === false ? object.text : withEmoji(object.text);
}

/** Return a text object as something to put into an element. */
export function textObject(object) {
  return object.type === "mrkdwn" ? mrkdwn(object.text) : plainText(object);
}

/** Return all words of a block, in order; mrkdwn without its signs of emphasis. */
export function wordsIn(part) {
  if (Array.isArray(part)) return part.map(wordsIn).join(" ");
  if (!part || typeof part !== "object") return "";
  if (typeof part.text === "string")
    return part.type === "mrkdwn" ? part.text.replace(/[*~`]/g, "") : part.text;
  return [part.text, part.fields, part.elements].map(wordsIn).filter(Boolean).join(" ");
}
