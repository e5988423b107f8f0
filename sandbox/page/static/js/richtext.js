// Rich text: paragraphs, lists, quotations and code, and what can stand in them.

import { slackDate } from "./dates.js";
import { link, make } from "./dom.js";
import { cannotDraw } from "./cannot_draw.js";
import { emoji } from "./emoji.js";
import { channelMention, userMention } from "./mentions.js";

const STYLES = { code: "code", strike: "s", italic: "em", bold: "strong", underline: "u" };

function styled(node, style = {}) {
  return Object.entries(STYLES)
    .filter(([name]) => style[name])
    .reduce((inside, [, tag]) => make(tag, {}, inside), node);
}

const PIECES = {
  text: ({ text }) => text,
  link: ({ url, text }) => link(url, text || url),
  user: ({ user_id: id }) => userMention(id),
  channel: ({ channel_id: id }) => channelMention(id),
  usergroup: ({ usergroup_id: id }) => make("span.mention", {}, `@${id}`),
  broadcast: ({ range }) => make("span.mention", {}, `@${range}`),
  emoji: ({ name, unicode }) => emoji(name) ?? (unicode ? fromUnicode(unicode, name) : `:${name}:`),
  date: ({ timestamp, format, url, fallback }) => slackDate(timestamp, format, url, fallback),
  color: ({ value }) => colour(value),
};

function fromUnicode(unicode, name) {
  const points = unicode.split("-").map((each) => Number.parseInt(each, 16));
  if (points.some((each) => !(each <= 0x10ffff))) return `:${name}:`;
  return make("span.emoji", { role: "img", "aria-label": name }, String.fromCodePoint(...points));
}

function colour(value) {
  const sample = make("span.colour", { "aria-hidden": "true" });
  sample.style.backgroundColor = value;
  return make("code", {}, sample, value);
}

function flow(pieces) {
  return pieces.map((piece) => {
    const draw = Object.hasOwn(PIECES, piece.type) && PIECES[piece.type];
    return draw ? styled(draw(piece), piece.style) : cannotDraw(piece.type, "span");
  });
}

function list({ elements, style, indent = 0, offset = 0, border }) {
  const ordered = style === "ordered";
  const shown = {
    start: ordered && offset ? offset + 1 : null,
    data: { indent: Math.min(indent, 8), border: border || 0 },
  };
  return make(
    ordered ? "ol.rich-list" : "ul.rich-list",
    shown,
    elements.map((each) => make("li", {}, flow(each.elements))),
  );
}

const PARTS = {
  rich_text_section: ({ elements }) => make("p.rich-section", {}, flow(elements)),
  rich_text_list: list,
  rich_text_quote: ({ elements }) => make("blockquote", {}, flow(elements)),
  rich_text_preformatted: ({ elements }) => make("pre", {}, make("code", {}, flow(elements))),
};

/** Return a block of rich text. */
export function richText(block) {
  const parts = block.elements.map((part) => {
    const draw = Object.hasOwn(PARTS, part.type) && PARTS[part.type];
    return draw ? draw(part) : cannotDraw(part.type);
  });
  return make("div.rich-text", {}, parts);
}
