// Menus: options of their own, options that the app gives while one types, and conversations.

import { combobox } from "./combobox.js";
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

/**
 * Return a menu as a control: its node, what has the focus, and its state as Slack writes it.
 * @param {Object} element the menu in Block Kit
 * @param {import("./controls.js").Frame} frame
 */
export function select(element, frame) {
  const { key, finds } = SORTS[element.type];
  const isOption = key === "selected_option";
  let current = frame.state?.[key] ?? null;
  const chosen = current && (isOption ? choiceOf(current) : idChoice[element.type](current));
  const { node, input } = combobox({
    id: frame.id,
    chosen,
    placeholder: element.placeholder?.text ?? "Choose",
    least: element.type === "external_select" ? (element.min_query_length ?? LEAST_QUERY) : 0,
    isRemote: element.type === "external_select",
    canClear: frame.isOptional,
    labels: frame.labels,
    find: finds(element, frame.options),
    onChoose(choice) {
      current = choice && (isOption ? choice.option : choice.value);
      frame.onChange(true);
    },
  });
  return { node, input, state: () => ({ type: element.type, [key]: current }) };
}

/** The sorts of menus that there are. */
export const SELECTS = Object.keys(SORTS);
