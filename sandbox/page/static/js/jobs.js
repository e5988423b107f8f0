// The video service's jobs: how each stands, what comes next, and what can be made to happen now.

import { fill, link, make, newId } from "./dom.js";

const TICK_MILLISECONDS = 1000;
const LEARNED = { callback: "the bot learned it by callback", poll: "the bot learned it by polling" };
const ENDINGS = { success: "is-good", error: "is-bad", deleted: "is-bad" };

function remaining(seconds) {
  if (seconds < 1) return "now";
  if (seconds < 90) return `in ${Math.round(seconds)} s`;
  return `in ${Math.round(seconds / 60)} min`;
}

/** One job; it is changed in place, so that nobody loses what they are about to press. */
function jobCard(first, turn, reasonsFor) {
  const id = newId("job");
  const path = `jobs/${encodeURIComponent(first.id)}`;
  const status = make("span.job-status");
  const bar = make("progress", { max: "1", "aria-label": "Progress" });
  const coming = make("span.job-next");
  const facts = make("p.job-facts");
  const reason = make("input.text", { id: `${id}-reason`, type: "text", list: `${id}-reasons` });
  const reasons = make("datalist", { id: `${id}-reasons` });
  const button = (words, does) =>
    make("button.button.is-small", { type: "button", onclick: does }, words);
  const finish = button(
    first.kind === "video" ? "Finish video" : "Finish training",
    () => turn(path, { do: "finish" }),
  );
  const failing = make(
    "form.job-fail",
    { hidden: true },
    make("label", { for: reason.id }, "Reason"),
    reason,
    reasons,
    make("button.button.is-small.is-danger", { type: "submit" }, "Fail"),
  );
  const fail = button("Fail…", () => {
    failing.hidden = !failing.hidden;
    fail.setAttribute("aria-expanded", String(!failing.hidden));
    if (!failing.hidden) reason.focus();
  });
  fail.setAttribute("aria-expanded", "false");
  failing.addEventListener("submit", async (event) => {
    event.preventDefault();
    const said = reason.value || reason.placeholder;
    if (await turn(path, { do: "fail", reason: said })) failing.hidden = true;
  });
  const callBack = button("Send callback", () => turn(path, { do: "call_back" }));
  const remove = button("Delete", () => turn(path, { do: "delete" }));
  const watch = first.watch_url ? link(first.watch_url, "Watch") : null;
  const { title } = first;
  const node = make(
    "li.job",
    { "aria-label": title },
    make("div.job-head", {}, make("strong", {}, title), status),
    first.script && !first.script.startsWith(title) && make("p.job-script", {}, first.script),
    make("p.job-id", {}, first.kind, " ", make("code", {}, first.id)),
    make("div.job-progress", {}, bar, coming),
    facts,
    make("div.job-actions", {}, finish, fail, callBack, remove, watch),
    failing,
  );
  let job = first;

  /** Show what depends on the time alone. */
  function tick(now) {
    const goesOn = job.ended === null;
    bar.hidden = !goesOn;
    const whole = job.ends_at === null ? 0 : job.ends_at - job.created_at;
    const took = whole > 0 ? (now - job.created_at) / whole : (job.share ?? 0);
    bar.value = Math.min(1, Math.max(0, took));
    coming.textContent = job.next && goesOn ? `${job.next} ${remaining(job.next_at - now)}` : "";
    if (goesOn && !job.next) coming.textContent = "stuck";
  }

  return {
    node,
    tick,
    update(now, time) {
      job = now;
      const goesOn = job.ended === null;
      status.textContent = job.status;
      status.className = `job-status ${ENDINGS[job.ended] ?? "is-going"}`;
      finish.hidden = fail.hidden = !goesOn;
      failing.hidden ||= !goesOn;
      callBack.disabled = !job.has_callback_url;
      remove.hidden = job.ended === "deleted";
      if (watch) watch.hidden = job.ended !== "success";
      fill(
        reasons,
        reasonsFor(job.kind).map((each) => make("option", { value: each })),
      );
      reason.placeholder = reasonsFor(job.kind)[0] ?? "";
      const said = [
        job.replica_id && job.kind === "video" && `replica ${job.replica_id}`,
        job.progress && `${job.progress} steps`,
        job.has_callback_url
          ? `${job.callbacks_sent} ${job.callbacks_sent === 1 ? "callback" : "callbacks"} sent`
          : "no callback requested",
        LEARNED[job.learned_by],
        job.reason && `“${job.reason}”`,
      ];
      facts.textContent = said.filter(Boolean).join(" · ");
      tick(time);
    },
  };
}

/** The list of jobs, newest first. @param {(what: string, body: Object) => Promise<boolean>} turn */
export function jobList(turn) {
  const none = make("p.quiet", { hidden: true }, "No jobs yet.");
  const list = make("ul.jobs");
  const cards = new Map();
  let ahead = 0;
  let reasons = {};
  const time = () => Date.now() / 1000 + ahead;

  setInterval(() => {
    if (list.checkVisibility()) for (const card of cards.values()) card.tick(time());
  }, TICK_MILLISECONDS);
  return {
    node: make("div", {}, none, list),
    update({ now, service, offers }) {
      ahead = now - Date.now() / 1000;
      reasons = offers.reasons;
      none.hidden = service.jobs.length > 0;
      for (const [id, card] of cards) {
        if (service.jobs.some((job) => job.id === id)) continue;
        card.node.remove();
        cards.delete(id);
      }
      for (const job of [...service.jobs].reverse()) {
        if (!cards.has(job.id)) {
          cards.set(
            job.id,
            jobCard(job, turn, (kind) => reasons[kind] ?? []),
          );
          list.prepend(cards.get(job.id).node);
        }
        cards.get(job.id).update(job, now);
      }
    },
  };
}
