// Menus: options of their own, options that the app gives while one types, and conversations.

import { combobox } from "./combobox.js";
import { fill, make } from "./dom.js";
import { icon } from "./icons.js";
import { channelName, state } from "./state.js";

// Slack's own default for menus that ask the app.
const LEAST_QUERY = 3;
const KINDS = ["public", "private", "im"];

/** Return an option as a list shows it; the option itself goes along. */
function choiceOf(option) {
  return {
    value: option.value,
    label: option.text.text,
    description: option.description?.text,
    option,
  };
}

function groupsOf({ options, option_groups: groups }) {
  if (groups) {
    return groups.map((group) => ({
      label: group.label.text,
      choices: group.options.map(choiceOf),
    }));
  }
  return options?.length ? [{ label: "", choices: options.map(choiceOf) }] : [];
}

function matching(groups, query) {
  const words = query.toLowerCase();
  const fits = ({ label, description = "" }) =>
    `${label} ${description}`.toLowerCase().includes(words);
  return groups
    .map(({ label, choices }) => ({ label, choices: choices.filter(fits) }))
    .filter(({ choices }) => choices.length);
}

/** Return the conversations that a menu offers to this person. */
function conversations({ filter = {} }) {
  const kinds = filter.include ?? KINDS;
  return [...state.channels.values()].filter(
    (channel) =>
      kinds.includes(channel.kind) &&
      !channel.is_archived &&
      !(filter.exclude_external_shared_channels && channel.is_ext_shared) &&
      !(filter.exclude_bot_users && channel.user === state.app.user),
  );
}

const placeChoice = (channel) => ({
  value: channel.id,
  label: channel.kind === "im" ? channelName(channel) : `#${channel.name}`,
});
const userChoice = (user) => ({
  value: user.id,
  label: `@${user.name}`,
  description: user.real_name,
});

const idChoice = {
  conversations_select: (id) => placeChoice(state.channels.get(id) ?? { id, name: id }),
  channels_select: (id) => placeChoice(state.channels.get(id) ?? { id, name: id }),
  users_select: (id) => userChoice(state.users.get(id) ?? { id, name: id }),
};

/** For each sort of menu: the key of its value in the state, and how its options are found. */
const SORTS = {
  static_select: {
    key: "selected_option",
    finds: (element) => (query) => matching(groupsOf(element), query),
  },
  external_select: {
    key: "selected_option",
    finds: (_, options) => async (query) => {
      const answer = await options(query);
      return answer.ok ? groupsOf(answer) : null;
    },
  },
  conversations_select: {
    key: "selected_conversation",
    finds: (element) => (query) =>
      matching([{ label: "", choices: conversations(element).map(placeChoice) }], query),
  },
  channels_select: {
    key: "selected_channel",
    finds: () => (query) =>
      matching(
        [
          {
            label: "",
            choices: conversations({ filter: { include: ["public"] } }).map(placeChoice),
          },
        ],
        query,
      ),
  },
  users_select: {
    key: "selected_user",
    finds: () => (query) =>
      matching([{ label: "", choices: [...state.users.values()].map(userChoice) }], query),
  },
};

/** Return how the choices of a menu are found, shown, and written into the state. */
function sortOf(sort, element, frame) {
  const { key, finds } = SORTS[sort];
  const isOption = key === "selected_option";
  return {
    key,
    shown: (value) => (isOption ? choiceOf(value) : idChoice[sort](value)),
    written: (choice) => (isOption ? choice.option : choice.value),
    menu: {
      id: frame.id,
      placeholder: element.placeholder?.text ?? "Choose",
      least: sort === "external_select" ? (element.min_query_length ?? LEAST_QUERY) : 0,
      isRemote: sort === "external_select",
      labels: frame.labels,
      find: finds(element, frame.options),
    },
  };
}

/**
 * Return a menu as a control: its node, what has the focus, and its state as Slack writes it.
 * @param {Object} element the menu in Block Kit
 * @param {import("./controls.js").Frame} frame
 */
function select(element, frame) {
  const { key, shown, written, menu } = sortOf(element.type, element, frame);
  let current = frame.state?.[key] ?? null;
  const { node, input } = combobox({
    ...menu,
    chosen: current && shown(current),
    canClear: frame.isOptional,
    onChoose(choice) {
      current = choice && written(choice);
      frame.onChange(true);
    },
  });
  return { node, input, state: () => ({ type: element.type, [key]: current }) };
}

/** Return a menu of which several options can be chosen, each with a button that removes it. */
function multiSelect(element, frame) {
  const sort = sortOf(element.type.slice(MULTI.length), element, frame);
  const key = `${sort.key}s`;
  const most = element.max_selected_items ?? Infinity;
  let current = frame.state?.[key] ?? [];
  const list = make("ul.chosen", { role: "list" });
  const { node, input } = combobox({
    ...sort.menu,
    chosen: null,
    canClear: false,
    forgets: true,
    onChoose(choice) {
      const isThere = current.some((each) => sort.shown(each).value === choice.value);
      if (!isThere && current.length >= most) {
        frame.refuse(`No more than ${most} can be chosen.`);
        return;
      }
      if (!isThere) change([...current, sort.written(choice)]);
    },
  });

  function change(values) {
    current = values;
    draw();
    frame.onChange(true);
  }

  function remove(value) {
    change(current.filter((each) => each !== value));
    input.focus();
  }

  function draw() {
    fill(
      list,
      current.map((value) => {
        const { label } = sort.shown(value);
        const props = { type: "button", "aria-label": `Remove ${label}` };
        const button = make("button.icon-button", props, icon("close"));
        button.addEventListener("click", () => remove(value));
        return make("li.chosen-option", {}, make("span", {}, label), button);
      }),
    );
    list.hidden = !current.length;
    input.placeholder = current.length ? "" : sort.menu.placeholder;
  }

  draw();
  return {
    node: make("div", {}, list, node),
    input,
    state: () => ({ type: element.type, [key]: current }),
  };
}

const MULTI = "multi_";
const sorts = Object.keys(SORTS);

/** For each sort of menu, what makes its control. */
export const SELECTS = {
  ...Object.fromEntries(sorts.map((sort) => [sort, select])),
  ...Object.fromEntries(sorts.map((sort) => [MULTI + sort, multiSelect])),
};
