// Slack's markup for text, drawn: emphasis, code, quotations, links, mentions, dates and emoji.

import { slackDate } from "./dates.js";
import { isLink, link, make } from "./dom.js";
import { emoji } from "./emoji.js";
import { channelMention, userMention } from "./mentions.js";

const FENCE = /```\n?([\s\S]+?)\n?```/;
const QUOTED = /^(?:&gt;|>) ?/;
const QUOTED_TO_THE_END = /^(?:&gt;|>){3} ?/;
// What is no running text; the last character stands for such a thing and so must not stand for itself.
const ATOM = /`([^`\n]+)`|<([^<>\n]+)>|:([a-z0-9_+-]+):|\uE000/g;
const PLACE = "\uE000";
const EMPHASIS = /(?<![\p{L}\p{N}_])([*_~])(\S|\S[^\n]*?\S)\1(?![\p{L}\p{N}_])/u;
const TAGS = { "*": "strong", _: "em", "~": "s" };
const ENTITIES = { "&lt;": "<", "&gt;": ">", "&amp;": "&" };

/** Return text without the three entities that Slack's escaping makes. */
export function unescape(text) {
  return text.replace(/&(?:lt|gt|amp);/g, (entity) => ENTITIES[entity]);
}

/** Return mrkdwn as nodes. @param {string} text @returns {DocumentFragment} */
export function mrkdwn(text) {
  const drawn = new DocumentFragment();
  const pieces = text.split(FENCE);
  pieces.forEach((piece, at) => {
    if (at % 2) drawn.append(make("pre", {}, make("code", {}, codeText(piece))));
    else drawn.append(...paragraphs(trimmed(piece, at > 0, at < pieces.length - 1)));
  });
  return drawn;
}

/** Return a piece without the line breaks that only set the code beside it apart. */
function trimmed(piece, afterCode, beforeCode) {
  let text = afterCode ? piece.replace(/^ *\n/, "") : piece;
  if (beforeCode) text = text.replace(/\n *$/, "");
  return text;
}

function paragraphs(text) {
  if (!text) return [];
  const nodes = [];
  const lines = text.split("\n");
  for (let at = 0; at < lines.length;) {
    let end = at;
    if (QUOTED_TO_THE_END.test(lines[at])) {
      end = lines.length;
      const inside = [lines[at].replace(QUOTED_TO_THE_END, ""), ...lines.slice(at + 1)];
      nodes.push(make("blockquote", {}, inline(inside)));
    } else if (QUOTED.test(lines[at])) {
      while (end < lines.length && QUOTED.test(lines[end])) end += 1;
      const inside = lines.slice(at, end).map((line) => line.replace(QUOTED, ""));
      nodes.push(make("blockquote", {}, inline(inside)));
    } else {
      while (end < lines.length && !QUOTED.test(lines[end])) end += 1;
      nodes.push(...inline(lines.slice(at, end)));
    }
    at = end;
  }
  return nodes;
}

/** Return the nodes of lines of running text. */
function inline(lines) {
  return lines.flatMap((line, at) => [...(at ? [make("br")] : []), ...lineNodes(line)]);
}

function lineNodes(line) {
  const atoms = [];
  const text = line.replace(ATOM, (whole, code, angled, name) => {
    atoms.push(atom(whole, code, angled, name));
    return PLACE;
  });
  return emphasised(text, atoms);
}

/** Return the nodes of text in which `PLACE` stands for the next of `atoms`, which is used up. */
function emphasised(text, atoms) {
  const match = EMPHASIS.exec(text);
  if (!match) return plain(text, atoms);
  const before = plain(text.slice(0, match.index), atoms);
  const inside = make(TAGS[match[1]], {}, emphasised(match[2], atoms));
  return [...before, inside, ...emphasised(text.slice(match.index + match[0].length), atoms)];
}

function plain(text, atoms) {
  return text.split(PLACE).flatMap((words, at) => [at ? atoms.shift() : "", unescape(words)]);
}

function atom(whole, code, angled, name) {
  if (code) return make("code", {}, codeText(code));
  if (angled) return angledNode(angled);
  return (name && emoji(name)) || whole;
}

/** Return code letter for letter, links in it as their words. */
function codeText(code) {
  return unescape(
    code.replace(/<([^<>|]+)(?:\|([^<>]+))?>/g, (_, target, label) => label ?? target),
  );
}

function angledNode(inside) {
  const cut = inside.indexOf("|");
  const target = cut < 0 ? inside : inside.slice(0, cut);
  const label = cut < 0 ? "" : unescape(inside.slice(cut + 1));
  if (target.startsWith("@")) return userMention(target.slice(1), label);
  if (target.startsWith("#")) return channelMention(target.slice(1), label);
  if (target.startsWith("!date^")) {
    const [, stamp, pattern, url] = target.split("^");
    return slackDate(stamp, pattern, url && unescape(url), label);
  }
  if (target.startsWith("!subteam^"))
    return make("span.mention", {}, label || `@${target.slice(9)}`);
  if (/^!(channel|here|everyone)$/.test(target))
    return make("span.mention", {}, `@${target.slice(1)}`);
  const url = unescape(target);
  if (isLink(url)) return link(url, label || url.replace(/^(mailto|tel):/, ""));
  return label || `<${url}>`;
}
