// The switches of both sides: what goes wrong from now on, what goes wrong next, and how long things take.

import { fill, make, newId } from "./dom.js";

const RATE_LIMIT_SECONDS = 30;

/** @typedef {(what: string, body: Object) => Promise<boolean>} Turn */

function toggle(words, about, onTurn) {
  const id = newId("switch");
  const box = make("input", {
    type: "checkbox",
    role: "switch",
    id,
    "aria-describedby": `${id}-about`,
  });
  box.addEventListener("change", async () => {
    const wanted = box.checked;
    if (!(await onTurn(wanted))) box.checked = !wanted;
  });
  const label = make("label", { for: id }, words);
  const note = make("span.switch-about", { id: `${id}-about` }, about);
  return {
    node: make("div.switch", {}, box, make("div", {}, label, note)),
    update(on) {
      box.checked = on;
    },
  };
}

/** Return a menu of the browser's own; `choices` are pairs of a value and its words. */
function picker(words, choices, onPick = () => {}) {
  const id = newId("picker");
  const menu = make("select", { id });
  menu.addEventListener("change", () => onPick(menu.value));
  offer(menu, choices);
  return { node: make("div.picker", {}, make("label", { for: id }, words), menu), menu };
}

function offer(menu, choices) {
  if (menu.dataset.offered === JSON.stringify(choices)) return;
  menu.dataset.offered = JSON.stringify(choices);
  fill(
    menu,
    choices.map(([value, words]) => make("option", { value }, words)),
  );
}

function seconds(words, onChange) {
  const id = newId("seconds");
  const input = make("input", {
    id,
    type: "number",
    min: "0",
    max: "86400",
    step: "any",
    inputmode: "decimal",
  });
  input.addEventListener("change", () => input.value !== "" && onChange(Number(input.value)));
  return {
    node: make("div.seconds", {}, make("label", { for: id }, words), input),
    update(value) {
      if (document.activeElement !== input) input.value = value;
    },
  };
}

const button = (words, onclick) =>
  make("button.button.is-small", { type: "button", onclick }, words);

/** What goes wrong with the next request of one side, and what waits already. */
function nextFaults(side, turn) {
  const operation = picker("Request", []);
  const what = picker("What happens", []);
  const add = button("Add", () =>
    turn("next", { side, operation: operation.menu.value, what: what.menu.value }),
  );
  what.node.classList.add("is-wide");
  const waiting = make("ul.waiting", { "aria-label": "Waiting" });
  return {
    node: make("div.next-faults", {}, operation.node, add, what.node, waiting),
    update(next, operations, faults) {
      offer(
        operation.menu,
        operations.map((each) => [each, each]),
      );
      offer(
        what.menu,
        faults.map((each) => [each.what, each.label]),
      );
      fill(
        waiting,
        next.map((each) => make("li", {}, make("code", {}, each.operation), ` ${each.label}`)),
      );
    },
  };
}

/** How the next job ends, with a reason where it fails. */
function nextScenario(turn) {
  const kind = picker(
    "Job",
    [
      ["create_video", "next video"],
      ["create_replica", "next training"],
    ],
    offerReasons,
  );
  const id = newId("reason");
  const list = make("datalist", { id: `${id}-list` });
  const reason = make("input.text", { id, type: "text", list: list.id });
  let offered = {};

  function offerReasons() {
    const wanted = kind.menu.value === "create_video" ? "video" : "replica";
    fill(
      list,
      (offered[wanted] ?? []).map((each) => make("option", { value: each })),
    );
    reason.placeholder = offered[wanted]?.[0] ?? "";
  }

  const next = (what) => {
    const scenario = { side: "service", operation: kind.menu.value, what };
    if (what === "fail") scenario.reason = reason.value || reason.placeholder;
    return turn("next", scenario);
  };
  return {
    node: make(
      "div.next-faults",
      {},
      kind.node,
      make("div.picker.is-wide", {}, make("label", { for: id }, "Reason to fail"), reason, list),
      button("Fail", () => next("fail")),
      button("Never finish", () => next("never")),
    ),
    update(reasons) {
      if (JSON.stringify(reasons) === JSON.stringify(offered)) return;
      offered = reasons;
      offerReasons();
    },
  };
}

const group = (words, ...inside) => make("section.switch-group", {}, make("h3", {}, words), inside);

/** The video service's switches. @param {Turn} turn */
export function serviceSwitches(turn) {
  const set = (name) => (on) => turn("service", { [name]: on });
  const down = toggle("Service is down", "Every request gets 503", set("down"));
  const stalled = toggle(
    "Create requests stall",
    "They get no answer before this is off",
    set("stalled"),
  );
  const limited = toggle(
    "Rate limit",
    `Every request gets 429 for ${RATE_LIMIT_SECONDS} seconds`,
    (on) =>
      turn("service", {
        rate_limit: on ? { seconds: RATE_LIMIT_SECONDS, retry_after: true } : null,
      }),
  );
  const credit = toggle("Out of credit", "Create requests get 402", set("out_of_credit"));
  const revoked = toggle("API key revoked", "Every request gets 401", set("key_revoked"));
  const quotes = picker(
    "API key in responses",
    [
      ["", "left out"],
      ["plain", "quoted"],
      ["percent-encoded", "percent-encoded"],
      ["percent-encoded twice", "percent-encoded twice"],
      ["escaped as in HTML", "escaped as in HTML"],
      ["escaped as in JSON", "escaped as in JSON"],
      ["in capitals", "in capitals"],
      ["without its end", "quoted without its end"],
    ],
    (how) => turn("service", { quotes_key: how || null }),
  );
  const callbacks = picker(
    "Callbacks",
    [
      ["once", "once, when a job ends"],
      ["none", "never"],
      ["twice", "twice"],
    ],
    set("callbacks"),
  );
  const pace = Object.entries({
    queued: "Queued",
    generating: "Generating",
    training: "Training",
  }).map(([name, words]) => [
    name,
    seconds(words, (value) => turn("service", { pace: { [name]: value } })),
  ]);
  const lose = (operation, words) =>
    button(words, () => turn("next", { side: "service", operation, what: "lose_answer" }));
  const faults = nextFaults("service", turn);
  const scenario = nextScenario(turn);
  return {
    node: make(
      "div",
      {},
      group(
        "From now on",
        down.node,
        stalled.node,
        limited.node,
        credit.node,
        revoked.node,
        quotes.node,
        callbacks.node,
        make(
          "fieldset.pace",
          {},
          make("legend", {}, "Duration of new jobs, in seconds"),
          pace.map(([, each]) => each.node),
        ),
      ),
      group("The next job", scenario.node),
      group(
        "The next request",
        make(
          "div.shortcuts",
          {},
          lose("create_video", "Lose the response to the next video"),
          lose("create_replica", "Lose the response to the next training"),
        ),
        faults.node,
      ),
    ),
    update({ service, offers }) {
      down.update(service.down);
      stalled.update(service.stalled);
      limited.update(service.rate_limited_until !== null);
      credit.update(service.out_of_credit);
      revoked.update(service.key_revoked);
      quotes.menu.value = service.quotes_key ?? "";
      callbacks.menu.value = service.callbacks;
      for (const [name, each] of pace) each.update(service.pace[name]);
      faults.update(service.next, offers.service.operations, offers.faults);
      scenario.update(offers.reasons);
    },
  };
}

/** The bot's switch. @param {Turn} turn */
export function botSwitches(turn) {
  const approval = toggle(
    "Approval",
    "Somebody else has to approve a request before anything is created",
    (on) => turn("bot", { approval: on }),
  );
  return {
    node: group("The bot", approval.node),
    update: ({ bot }) => approval.update(bot.approval),
  };
}

/** A channel as Slack has it: whether the app is in it, and whether it is archived. */
function channelRow(first, turn) {
  const set = (name) => (on) => turn(`channels/${first.id}`, { [name]: on });
  const member = toggle("App is a member", "", set("has_app"));
  const archived = toggle("Archived", "", set("is_archived"));
  const node = make(
    "div.channel-row",
    { role: "group", "aria-label": first.name },
    make("strong", {}, first.name),
    member.node,
    archived.node,
  );
  return {
    node,
    update(channel) {
      member.update(channel.has_app);
      archived.update(channel.is_archived);
    },
  };
}

/** Slack's switches. @param {Turn} turn */
export function slackSwitches(turn) {
  const set = (name) => (on) => turn("slack", { [name]: on });
  const limits = toggle(
    "Rate-limit posts",
    "One per second in each channel, after a burst of five",
    set("rate_limits"),
  );
  const history = toggle(
    "History scopes granted",
    "The bot can look for a post whose response was lost",
    set("history_scopes"),
  );
  const auth = picker("Every call fails with", [["", "no error"]], (value) =>
    turn("slack", { auth_error: value || null }),
  );
  const lose = button("Lose the response to the next post", () =>
    turn("next", { side: "slack", operation: "chat.postMessage", what: "lose_answer" }),
  );
  const faults = nextFaults("slack", turn);
  const rows = new Map();
  const channels = make("div.channel-rows");
  return {
    node: make(
      "div",
      {},
      group("From now on", limits.node, history.node, auth.node),
      group("The next request", make("div.shortcuts", {}, lose), faults.node),
      group("Channels", channels),
    ),
    update({ slack, offers }) {
      limits.update(slack.rate_limits);
      history.update(slack.history_scopes);
      const errors = offers.auth_errors.map((each) => [each, each]);
      offer(auth.menu, [["", "no error"], ...errors]);
      auth.menu.value = slack.auth_error ?? "";
      faults.update(slack.next, offers.slack.operations, offers.faults);
      for (const each of slack.channels.filter(({ kind }) => kind !== "im")) {
        if (!rows.has(each.id)) {
          rows.set(each.id, channelRow(each, turn));
          channels.append(rows.get(each.id).node);
        }
        rows.get(each.id).update(each);
      }
    },
  };
}
