// The scenarios: each plays something that goes wrong, says what to look at, and puts all back.

import { state } from "./state.js";

/** What the card says of a request that nobody but a person knows the end of. */
const ASKED = "Needs an answer";
const REASON = "The script contains a name that this replica may not say";

/** Play a refusal of the create request that ends the video. */
async function refused(stage, { script, cause, switches, status }) {
  await stage.begin();
  stage.say(cause);
  if (!(await stage.tryToAsk(script, () => stage.service(switches)))) {
    stage.say("The form itself says so, before anything is sent or charged.");
    await stage.pause(6);
    return;
  }
  await stage.findCard();
  await stage.requests(1, (each) => each.status === status);
  await stage.reply();
  stage.say("The card says what is wrong and who can fix it. Nothing was created or charged.");
  stage.say("Once it is fixed, Edit and retry opens the form with everything you had entered.");
}

/**
 * @typedef {Object} Scenario
 * @property {string} name
 * @property {string} title
 * @property {string} about what one sees, in a sentence
 * @property {(stage: Object) => Promise<void>} play
 */

/** @type {Scenario[]} */
export const SCENARIOS = [
  {
    name: "fails",
    title: "A video that fails",
    about: "The video service says why, and the script is not lost.",
    async play(stage) {
      await stage.begin();
      stage.say("You ask for a video, and the video service is going to refuse the script.");
      await stage.ask("Thank you, Taylor, for a great year!", () =>
        stage.next({ side: "service", operation: "create_video", what: "fail", reason: REASON }),
      );
      await stage.findCard();
      stage.say("The card shows how it is going. Wait a few seconds.");
      await stage.reply();
      stage.say(
        "It failed. The card and the reply in its thread give the video service's own reason.",
      );
      stage.say("Press Edit and retry: the form opens with everything you had entered.");
    },
  },
  {
    name: "down",
    title: "The service goes down",
    about: "Twenty requests meet an outage: nearly all wait, and are made after it.",
    async play(stage) {
      const team = "Hello from team";
      const [yours, ...theirs] = Array.from({ length: 20 }, (_, index) => `${team} ${index + 1}!`);
      await stage.begin();
      stage.say("You and others ask for twenty videos. Just then, the video service goes down.");
      await stage.service({ stalled: true });
      await stage.ask(yours);
      await stage.findCard();
      await stage.othersAsk(theirs);
      await stage.service({ down: true, stalled: false });
      await stage.glimpse(() => stage.count(team, "is down"));
      stage.say("A few requests were under way. The cards of the others say that they wait.");
      await stage.pause(8);
      await stage.mend("down");
      stage.say("The video service is back.");
      const [made, asked] = await stage.until(() => {
        const counts = [stage.count(team, "Ready"), stage.count(team, ASKED)];
        return counts[0] + counts[1] === 1 + theirs.length && counts;
      });
      const unknown = asked ? ` For ${asked}, nobody knows: the bot asks.` : "";
      stage.say(`${made} were made without help.${unknown}`);
    },
  },
  {
    name: "outlived",
    title: "An outage while a video is made",
    about: "The video service stops answering for a moment.",
    async play(stage) {
      await stage.begin();
      stage.say("You ask for a video. While it is being made, the video service goes down.");
      await stage.service({ pace: { queued: 2, generating: 8 } });
      await stage.ask("The new office opens on Monday!");
      await stage.findCard();
      await stage.requests(1, (each) => each.about === "create_video" && each.status === 200);
      await stage.service({ down: true });
      await stage.requests(2, (each) => each.status === 503);
      await stage.cardChange();
      stage.say("Every request now gets a 503. The bot keeps asking, and the card says so.");
      await stage.pause(5);
      await stage.mend("down");
      stage.say("The video service is back.");
      await stage.reply();
      stage.say("The bot found the finished video by itself. Nobody had to ask twice.");
    },
  },
  {
    name: "lost",
    title: "The answer gets lost",
    about: "The video is created, but the bot never hears about it.",
    async play(stage) {
      await stage.begin();
      stage.say("The video service will create this video, but its answer gets lost on the way.");
      await stage.ask("Lunch is on us this Friday!", () =>
        stage.next({ side: "service", operation: "create_video", what: "lose_answer" }),
      );
      await stage.findCard();
      await stage.requests(1, (each) => each.about === "create_video");
      stage.say("The bot doesn't send the request again: that could be charged twice. It checks.");
      await stage.reply();
      stage.say("The callback gave the video's id. One request, one video, one charge.");
      stage.say("See the requests: create_video has no answer, and the callback comes later.");
    },
  },
  {
    name: "unknown",
    title: "Nobody knows whether it was created",
    about: "The answer gets lost, and no callback comes.",
    async play(stage) {
      await stage.begin();
      stage.say("The video service creates this video. Its answer gets lost, and it never calls back.");
      await stage.service({ callbacks: "none" });
      const script = "The canteen has a new menu.";
      await stage.ask(script, () =>
        stage.next({ side: "service", operation: "create_video", what: "lose_answer" }),
      );
      await stage.findCard();
      await stage.requests(1, (each) => each.about === "create_video");
      stage.say("The bot doesn't send the request again: that could be charged twice.");
      await stage.until(() => stage.count(script, ASKED));
      // Several questions to one person are one message, in the thread of the first.
      const isHere = await stage.glimpse(stage.hasReply);
      if (!isHere) stage.findQuestion();
      stage.say(
        isHere
          ? "It asks you in the thread what to do."
          : "It asks you together with what it asked before, in the thread of that request.",
      );
    },
  },
  {
    name: "approval",
    title: "A video that needs approval",
    about: "Nothing is created until somebody else approves it.",
    async play(stage) {
      await stage.begin();
      stage.say("You ask for a video that somebody else has to approve first.");
      await stage.approval(true);
      await stage.ask("Our founders look back on ten years, and forward to ten more.");
      const card = await stage.findCard();
      if (!JSON.stringify(card).includes("Waiting for approval")) {
        stage.giveUp("A script as short as this needs no approval: APPROVAL_ABOVE is set.");
      }
      stage.say("Nothing is sent to the video service. The card says who was asked.");
      stage.say("Switch to one of them, open the app's messages, and press Approve or Decline.");
    },
  },
  {
    name: "absent",
    title: "The bot is not in the channel",
    about: "It can't post where you asked.",
    async play(stage) {
      const place = [...state.channels.values()]
        .sort((one, other) => one.has_app - other.has_app)
        .find((each) => each.kind === "private" && !each.read_only);
      await stage.begin();
      if (!place) stage.giveUp("There is no private channel here that you are in.");
      await stage.membership(place.id, false);
      stage.goTo(place.id);
      stage.say(`You ask in #${place.name}, a private channel that the bot is not in.`);
      if (await stage.tryToAsk("This stays between us, team.")) {
        const direct = await stage.directMessage();
        stage.say("Slack doesn't let the bot post here, so it writes to you directly.");
        stage.say("The direct message has the result, and says how to invite the bot.");
        stage.place = direct;
        return;
      }
      stage.say("The form says so before anything is spent, and how to fix it.");
      await stage.pause(5);
      await stage.invite(place.id);
      stage.say("Somebody invites the bot, and you press the button again.");
      await stage.pause(2);
      await stage.send();
      await stage.findCard();
      await stage.reply();
      stage.say("Now the card and its reply are here. Nothing had to be typed again.");
    },
  },
  {
    name: "credit",
    title: "The account is out of credit",
    about: "The video service answers 402.",
    play: (stage) =>
      refused(stage, {
        script: "Three cheers for the support team!",
        cause: "The account at the video service is out of credit: create requests get a 402.",
        switches: { out_of_credit: true },
        status: 402,
      }),
  },
  {
    name: "key",
    title: "The API key is revoked",
    about: "The video service answers 401 to everything.",
    play: (stage) =>
      refused(stage, {
        script: "Please water the plants this week.",
        cause: "The API key no longer works: the video service answers every request with 401.",
        switches: { key_revoked: true },
        status: 401,
      }),
  },
  {
    name: "limit",
    title: "Too many requests",
    about: "The video service answers 429: the bot has to wait.",
    async play(stage) {
      await stage.begin();
      stage.say("The video service is busy: it answers 429 and asks the bot to wait.");
      await stage.ask("The town hall starts at ten o'clock.", () =>
        stage.next({ side: "service", operation: "create_video", what: "rate_limit" }),
      );
      await stage.findCard();
      await stage.requests(1, (each) => each.status === 429);
      stage.say("The request is stored, and the card says what it waits for.");
      await stage.reply();
      stage.say("The bot waited as long as it was asked to, and then created the video.");
    },
  },
];
