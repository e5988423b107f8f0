// The blocks of messages and modals, each type drawn by a function of its own.

import { cannotDraw } from "./cannot_draw.js";
import { link, make } from "./dom.js";
import { element } from "./elements.js";
import { icon } from "./icons.js";
import { picture } from "./pictures.js";
import { richText } from "./richtext.js";
import { plainText, textObject } from "./texts.js";

function section(block, surface) {
  const parts = [];
  if (block.text) parts.push(make("div.section-text", {}, textObject(block.text)));
  if (block.fields) {
    const fields = block.fields.map((each) => make("div.section-field", {}, textObject(each)));
    parts.push(make("div.section-fields", {}, fields));
  }
  const { accessory } = block;
  const beside =
    accessory &&
    (accessory.type === "image"
      ? picture(accessory.image_url, accessory.alt_text, "is-accessory")
      : element(accessory, block, surface));
  return make("div.section", {}, make("div.section-words", {}, parts), beside);
}

function context(block) {
  const elements = block.elements.map((each) =>
    each.type === "image"
      ? picture(each.image_url, each.alt_text, "is-small")
      : make("span.context-text", {}, textObject(each)),
  );
  return make("div.context", {}, elements);
}

function actions(block, surface) {
  return make(
    "div.actions",
    {},
    block.elements.map((each) => element(each, block, surface)),
  );
}

function image(block) {
  const title = block.title && make("figcaption", {}, plainText(block.title));
  return make("figure.image", {}, title, picture(block.image_url, block.alt_text));
}

function video(block) {
  const from = [block.author_name, block.provider_name].filter(Boolean).join(" · ");
  const title = plainText(block.title);
  const play = link(block.video_url, icon("play"), make("span", {}, "Play"));
  play.classList.add("video-play");
  play.setAttribute("aria-label", `Play ${title}`);
  return make(
    "div.video",
    {},
    make("strong.video-title", {}, block.title_url ? link(block.title_url, title) : title),
    from && make("div.video-from", {}, from),
    block.description && make("div.video-description", {}, plainText(block.description)),
    make("div.video-frame", {}, picture(block.thumbnail_url, block.alt_text), play),
  );
}

/** @type {Object<string, (block: Object, surface: import("./elements.js").Surface) => Node>} */
const BLOCKS = {
  header: (block) => make("h2.block-header", {}, plainText(block.text)),
  section,
  context,
  divider: () => make("hr"),
  actions,
  image,
  rich_text: richText,
  video,
  // Input blocks stand in modals only, and are drawn there; file blocks come with files.
};

/** Return a block as a node; what cannot be drawn says so. */
export function drawBlock(block, surface) {
  const draw = Object.hasOwn(BLOCKS, block.type) && BLOCKS[block.type];
  if (!draw) return make("div.block", {}, cannotDraw(block.type));
  try {
    return make("div.block", {}, draw(block, surface));
  } catch (error) {
    // A block of a known type in a shape that is not: the rest of the message is drawn all the same.
    return make("div.block", {}, cannotDraw(`${block.type} (${error.message})`));
  }
}
