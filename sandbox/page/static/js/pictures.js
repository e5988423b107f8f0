// Pictures, as far as they are on this machine: the sandbox loads nothing from elsewhere.

import { link, make } from "./dom.js";

const LOOPBACK = /^(127(\.\d+){3}|localhost|\[::1\])$/;

function isHere(url) {
  try {
    return LOOPBACK.test(new URL(url, location.href).hostname);
  } catch {
    return false;
  }
}

/** Return a picture, or its words with a link where it cannot be shown. */
export function picture(url, words, look = "") {
  const instead = () =>
    make("span.picture-words", {}, url ? link(url, words || "picture") : words || "picture");
  if (!url || !isHere(url)) return instead();
  const shown = make("img.picture", { src: url, alt: words ?? "", loading: "lazy" });
  if (look) shown.classList.add(look);
  shown.addEventListener("error", () => shown.replaceWith(instead()));
  return shown;
}
