// Input blocks: label, control, hint, counter, and the error under a field.

import { cannotDraw } from "./cannot_draw.js";
import { control, initialState, isControl, valueIn } from "./controls.js";
import { fill, make, newId } from "./dom.js";
import { icon } from "./icons.js";
import { plainText } from "./texts.js";

const LONGEST = 3000;
const URL_SHAPE = /^https?:\/\/[^\s/]+\S*$/i;
const EMAIL_SHAPE = /^[^@\s]+@[^@\s]+\.[^@\s]+$/;
const REQUIRED = "Please complete this required field.";

const count = (number) => number.toLocaleString("en-US");

/** Return what is wrong with a text before it is sent, or "". */
function wrongText(element, text) {
  const least = element.min_length ?? 0;
  const most = element.max_length ?? LONGEST;
  if (text.length > most) {
    return `Please shorten this to ${count(most)} characters: it has ${count(text.length)}.`;
  }
  if (text.length < least) return `Please write at least ${count(least)} characters.`;
  if (element.type === "url_text_input" && !URL_SHAPE.test(text)) {
    return "Please enter a valid link. It begins with https:// or http://.";
  }
  if (element.type === "email_text_input" && !EMAIL_SHAPE.test(text)) {
    return "Please enter a valid e-mail address.";
  }
  return element.type === "number_input" ? wrongNumber(element, text) : "";
}

function wrongNumber(element, text) {
  const shape = element.is_decimal_allowed ? /^-?\d+(\.\d+)?$/ : /^-?\d+$/;
  if (!shape.test(text))
    return `Please enter a ${element.is_decimal_allowed ? "" : "whole "}number.`;
  const { min_value: least, max_value: most } = element;
  if (least && Number(text) < Number(least)) return `Please enter ${least} or more.`;
  if (most && Number(text) > Number(most)) return `Please enter ${most} or less.`;
  return "";
}

function counter(element) {
  const counts = element.type === "plain_text_input" && element.max_length;
  if (!counts) return { node: null, update() {} };
  const node = make("span.field-counter");
  return {
    node,
    update(text) {
      const left = element.max_length - text.length;
      node.textContent = `${count(text.length)} of ${count(element.max_length)}`;
      node.classList.toggle("is-over", left < 0);
    },
  };
}

/**
 * Return an input block as a field.
 * @param {Object} block
 * @param {import("./elements.js").Surface} surface
 * @returns {{node: HTMLElement, wrong: () => string, showError: (words: string) => void,
 *   focus: () => void}}
 */
export function field(block, surface) {
  const { element: item } = block;
  if (!isControl(item)) {
    const node = make(
      "div.field",
      {},
      make("div.field-label", {}, plainText(block.label)),
      cannotDraw(item.type),
    );
    return { node, wrong: () => "", showError() {}, focus() {} };
  }
  const [id, hintId, errorId] = [newId("field"), newId("hint"), newId("error")];
  const label = [
    plainText(block.label),
    block.optional && make("span.field-optional", {}, " (optional)"),
  ];
  const hint = block.hint && make("p.field-hint", { id: hintId }, plainText(block.hint));
  const error = make("p.field-error", { id: errorId, hidden: true });
  const counted = counter(item);
  const made = control(item, {
    id,
    state: surface.stateOf(block.block_id, item) ?? initialState(item),
    isOptional: Boolean(block.optional),
    dispatches: Boolean(block.dispatch_action),
    labels: {
      "aria-describedby": `${errorId} ${block.hint ? hintId : ""}`.trim(),
      "aria-required": block.optional ? null : "true",
    },
    options: (query) =>
      surface.options({ block_id: block.block_id, action_id: item.action_id, query }),
    refuse: showError,
    async onChange(isSettled) {
      counted.update(made.state().value ?? "");
      showError("");
      if (!isSettled || !block.dispatch_action) return;
      const action = { block_id: block.block_id, action_id: item.action_id };
      const outcome = await surface.act({ ...action, value: valueIn(made.state()) });
      if (!outcome.ok) surface.warn(outcome.error.text);
    },
  });
  made.input.dataset.key = `${surface.name}/${block.block_id}/${item.action_id}`;
  counted.update(made.state().value ?? "");
  surface.keep(block.block_id, item, made);

  const head = made.isGroup
    ? make("legend.field-label", {}, label)
    : make("div.field-head", {}, make("label.field-label", { for: id }, label), counted.node);
  const node = make(
    made.isGroup ? "fieldset.field" : "div.field",
    {},
    head,
    made.node,
    error,
    hint,
  );
  if (made.isGroup) {
    node.setAttribute("aria-describedby", `${errorId} ${block.hint ? hintId : ""}`.trim());
  }

  function showError(words) {
    if (error.hidden && !words) return;
    error.hidden = !words;
    fill(error, words && icon("note"), words);
    node.classList.toggle("is-wrong", Boolean(words));
    if (words) made.input.setAttribute("aria-invalid", "true");
    else made.input.removeAttribute("aria-invalid");
  }

  return {
    node,
    showError,
    focus() {
      made.input.focus();
      node.scrollIntoView({ block: "nearest" });
    },
    wrong() {
      const words = made.wrong?.();
      if (words) return words;
      const value = valueIn(made.state());
      const isEmpty = value === null || value === "" || value.length === 0;
      if (isEmpty) return block.optional ? "" : REQUIRED;
      return "value" in made.state() ? wrongText(item, value) : "";
    },
  };
}
