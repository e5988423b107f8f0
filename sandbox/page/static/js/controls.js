// What holds a value: text fields, radio buttons, checkboxes and menus, in modals and in messages.

import { make, newId } from "./dom.js";
import { filesControl } from "./files.js";
import { SELECTS } from "./selects.js";
import { textObject } from "./texts.js";

/**
 * What a control stands in.
 * @typedef {Object} Frame
 * @property {string} id for the label
 * @property {Object|null} state what it begins with, as Slack writes it
 * @property {boolean} isOptional
 * @property {boolean} dispatches whether each change is sent to the app
 * @property {Object<string, string>} labels `aria-…` attributes
 * @property {(isSettled: boolean) => void} onChange settled: chosen or confirmed, not just typed
 * @property {(query: string) => Promise<Object>} options asks the app for those of a menu
 * @property {(words: string) => void} [refuse] says under the field what cannot be entered
 *
 * @typedef {Object} Control
 * @property {HTMLElement} node
 * @property {HTMLElement} input what takes the focus
 * @property {() => Object} state as Slack writes it
 * @property {() => string} [wrong] returns what is wrong beside the state, or ""
 * @property {boolean} [isGroup] several inputs, which need a legend and not a label
 */

/** For each control: the key of its value in the state, and of its initial one in Block Kit. */
const KEYS = {
  plain_text_input: ["value", "initial_value"],
  url_text_input: ["value", "initial_value"],
  email_text_input: ["value", "initial_value"],
  number_input: ["value", "initial_value"],
  radio_buttons: ["selected_option", "initial_option"],
  checkboxes: ["selected_options", "initial_options"],
  static_select: ["selected_option", "initial_option"],
  external_select: ["selected_option", "initial_option"],
  conversations_select: ["selected_conversation", "initial_conversation"],
  channels_select: ["selected_channel", "initial_channel"],
  users_select: ["selected_user", "initial_user"],
  multi_static_select: ["selected_options", "initial_options"],
  multi_external_select: ["selected_options", "initial_options"],
  multi_conversations_select: ["selected_conversations", "initial_conversations"],
  multi_channels_select: ["selected_channels", "initial_channels"],
  multi_users_select: ["selected_users", "initial_users"],
  file_input: ["files", "initial_files"],
};

const TYPES = { url_text_input: "url", email_text_input: "email", number_input: "text" };
const MODES = { number_input: "decimal" };

function textControl(element, frame) {
  const multiline = Boolean(element.multiline);
  const input = make(multiline ? "textarea.text" : "input.text", {
    id: frame.id,
    type: multiline ? null : (TYPES[element.type] ?? "text"),
    inputmode: MODES[element.type],
    rows: multiline ? "5" : null,
    placeholder: element.placeholder?.text,
    autocomplete: "off",
    ...frame.labels,
  });
  input.value = frame.state?.value ?? "";
  // As typed: what a browser would correct in links is not what was entered.
  input.addEventListener("input", () => frame.onChange(false));
  const onEach = element.dispatch_action_config?.trigger_actions_on ?? ["on_enter_pressed"];
  if (onEach.includes("on_character_entered")) {
    input.addEventListener("input", () => frame.onChange(true));
  }
  if (frame.dispatches && onEach.includes("on_enter_pressed") && !multiline) {
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing) return;
      event.preventDefault();
      frame.onChange(true);
    });
  }
  return { node: input, input, state: () => ({ type: element.type, value: input.value || null }) };
}

/** Return radio buttons or checkboxes: options of which one, or several, can be marked. */
function choicesControl(element, frame) {
  const single = element.type === "radio_buttons";
  const [key] = KEYS[element.type];
  const begun = frame.state?.[key];
  const marked = new Set([begun ?? []].flat().map((option) => option.value));
  const name = newId("choice");
  const boxes = element.options.map((option, at) => {
    const describedBy = option.description && newId("description");
    const box = make("input", {
      type: single ? "radio" : "checkbox",
      name,
      id: at ? newId("box") : frame.id,
      "aria-describedby": describedBy,
    });
    box.checked = marked.has(option.value);
    box.addEventListener("change", () => frame.onChange(true));
    return { box, option, describedBy };
  });
  const rows = boxes.map(({ box, option, describedBy }) =>
    make(
      "div.choice",
      {},
      box,
      make("label", { for: box.id }, textObject(option.text)),
      option.description &&
        make("div.choice-description", { id: describedBy }, textObject(option.description)),
    ),
  );
  const chosen = () => boxes.filter(({ box }) => box.checked).map(({ option }) => option);
  return {
    node: make("div.choices", {}, rows),
    input: boxes.find(({ box }) => box.checked)?.box ?? boxes[0].box,
    isGroup: true,
    state: () => ({ type: element.type, [key]: single ? (chosen()[0] ?? null) : chosen() }),
  };
}

/** @type {Object<string, (element: Object, frame: Frame) => Control>} */
const CONTROLS = {
  plain_text_input: textControl,
  url_text_input: textControl,
  email_text_input: textControl,
  number_input: textControl,
  radio_buttons: choicesControl,
  checkboxes: choicesControl,
  ...SELECTS,
  file_input: filesControl,
};

/** Return whether there is a control for an element. */
export const isControl = (element) => Object.hasOwn(CONTROLS, element.type);

/** Return the control for an element. @returns {Control} */
export const control = (element, frame) => CONTROLS[element.type](element, frame);

/** Return what an element holds before anybody touched it, as Slack writes it. */
export function initialState(element) {
  const [key, initial] = KEYS[element.type];
  return { type: element.type, [key]: element[initial] ?? null };
}

/** Return the value in a state as the server takes it: text, the values of options, or ids. */
export function valueIn(state) {
  const value = state[KEYS[state.type][0]];
  if (Array.isArray(value)) return value.map((each) => each.value ?? each.id ?? each);
  return value?.value ?? value ?? null;
}
