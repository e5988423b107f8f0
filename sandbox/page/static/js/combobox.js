// A field in which one types to find an option and chooses with arrows and Enter, or by pointing.
//
// After https://www.w3.org/WAI/ARIA/apg/patterns/combobox/ (editable, with list autocomplete).

import { fill, make, newId, settled } from "./dom.js";
import { icon } from "./icons.js";
import { floating } from "./floating.js";

const TYPING_MILLISECONDS = 150;

/**
 * @typedef {Object} Choice
 * @property {string} value
 * @property {string} label
 * @property {string} [description]
 * @typedef {{label: string, choices: Choice[]}} Group
 */

/**
 * Return a field and the means to use it.
 * @param {Object} wanted
 * @param {string} wanted.id of the text field, for its label
 * @param {Choice|null} wanted.chosen
 * @param {(query: string) => Group[]|Promise<Group[]|null>} wanted.find null: it did not work
 * @param {(choice: Choice|null) => void} wanted.onChoose
 * @param {number} [wanted.least] how many characters have to be typed before anything is looked for
 * @param {boolean} [wanted.isRemote] whether looking takes time, so that typing is waited for
 * @param {boolean} [wanted.canClear]
 * @param {boolean} [wanted.forgets] whether each choice is only reported, and the field empty again
 * @param {string} [wanted.placeholder]
 * @param {Object<string, string>} [wanted.labels] `aria-…` attributes of the text field
 */
export function combobox(wanted) {
  const { find, onChoose, least = 0, isRemote = false } = wanted;
  const listId = newId("list");
  const input = make("input.combobox-text", {
    id: wanted.id,
    type: "text",
    role: "combobox",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: wanted.placeholder,
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": listId,
    ...wanted.labels,
  });
  const list = make("div.combobox-list", { id: listId, role: "listbox", "aria-label": "Options" });
  const status = make("p.combobox-status", { role: "status" });
  const popup = make("div.combobox-popup", { popover: "manual" }, list, status);
  const clear = make("button.combobox-clear", { type: "button", tabindex: "-1" }, icon("close"));
  const open = make("button.combobox-open", { type: "button", tabindex: "-1" }, icon("down"));
  open.setAttribute("aria-hidden", "true");
  clear.setAttribute("aria-label", "Clear");
  const node = make("div.combobox", {}, input, clear, open, popup);
  const place = floating(input, popup);

  let chosen = wanted.chosen;
  /** @type {{choice: Choice, node: HTMLElement}[]} */
  let shown = [];
  let active = -1;
  let asked = 0;
  let isLooking = false;
  // Enter was pressed before the options were there: the first of them is meant.
  let isAwaited = false;

  const isOpen = () => input.getAttribute("aria-expanded") === "true";

  function restore() {
    input.value = chosen?.label ?? "";
    clear.hidden = !wanted.canClear || !chosen;
  }

  function close() {
    asked += 1;
    isAwaited = false;
    if (!isOpen()) return;
    input.setAttribute("aria-expanded", "false");
    point(-1);
    place.hide();
  }

  function point(at) {
    shown[active]?.node.removeAttribute("aria-selected");
    active = at;
    const row = shown[active]?.node;
    if (!row) {
      input.removeAttribute("aria-activedescendant");
      return;
    }
    row.setAttribute("aria-selected", "true");
    row.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", row.id);
  }

  function choose(choice) {
    const changed = choice?.value !== chosen?.value;
    chosen = wanted.forgets ? null : choice;
    close();
    restore();
    if (changed) onChoose(choice);
  }

  function row(choice) {
    const words = [make("span.option-label", {}, choice.label)];
    if (choice.description) words.push(make("span.option-description", {}, choice.description));
    const option = make("div.option", { id: newId("option"), role: "option" }, words);
    option.classList.toggle("is-chosen", choice.value === chosen?.value);
    option.addEventListener("click", () => choose(choice));
    option.addEventListener("pointermove", () => {
      if (shown[active]?.node !== option) point(shown.findIndex((each) => each.node === option));
    });
    shown.push({ choice, node: option });
    return option;
  }

  function show(groups) {
    shown = [];
    isLooking = false;
    point(-1);
    if (!groups) {
      fill(list);
      status.textContent = "The options could not be loaded.";
      return;
    }
    const parts = groups.map(({ label, choices }) => {
      const rows = choices.map(row);
      if (!label) return rows;
      const heading = make("div.option-group", { id: newId("group") }, label);
      return make("div", { role: "group", "aria-labelledby": heading.id }, heading, rows);
    });
    fill(list, parts);
    status.textContent = shown.length ? "" : "No results";
    const current = shown.findIndex(({ choice }) => choice.value === chosen?.value);
    point(current < 0 && input.value && shown.length ? 0 : current);
    place.show();
    if (isAwaited && shown.length) choose(shown[0].choice);
    isAwaited = false;
  }

  async function look(query) {
    const number = ++asked;
    if (query.length < least) {
      fill(list);
      shown = [];
      isLooking = false;
      status.textContent = `Type ${least} character${least === 1 ? "" : "s"} or more`;
      place.show();
      return;
    }
    if (isRemote && !shown.length) status.textContent = "Looking…";
    place.show();
    const groups = await find(query);
    if (number === asked && isOpen()) show(groups);
  }

  const lookSoon = settled(isRemote ? TYPING_MILLISECONDS : 0, () => {
    if (isOpen()) look(input.value.trim());
  });

  function expand() {
    if (isOpen() || input.disabled) return;
    input.setAttribute("aria-expanded", "true");
    input.select();
    look("");
  }

  input.addEventListener("click", expand);
  input.addEventListener("input", () => {
    input.setAttribute("aria-expanded", "true");
    point(-1);
    isLooking = true;
    isAwaited = false;
    lookSoon();
  });
  input.addEventListener("blur", () => {
    close();
    if (!input.value.trim() && chosen && wanted.canClear) choose(null);
    else restore();
  });
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      if (!isOpen()) expand();
      else if (shown.length) point((active + step + shown.length) % shown.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (!isOpen()) expand();
      else if (shown[active]) choose(shown[active].choice);
      else isAwaited = isLooking;
    } else if (event.key === "Escape" && isOpen()) {
      event.preventDefault();
      event.stopPropagation();
      close();
      restore();
    }
  });
  // Pointing at the popup must not take the focus away from the text.
  popup.addEventListener("pointerdown", (event) => event.preventDefault());
  popup.addEventListener("mousedown", (event) => event.preventDefault());
  open.addEventListener("mousedown", (event) => event.preventDefault());
  clear.addEventListener("mousedown", (event) => event.preventDefault());
  open.addEventListener("click", () => {
    input.focus();
    if (isOpen()) close();
    else expand();
  });
  clear.addEventListener("click", () => {
    input.focus();
    choose(null);
  });
  restore();
  return { node, input };
}
