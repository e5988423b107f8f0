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
