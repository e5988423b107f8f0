// Dates as Slack's clients write them, in the reader's own time zone, and kept true while time passes.

import { isLink, link, make } from "./dom.js";

const DAY = 86_400_000;
const UNITS = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];

/** Return what `Intl` makes of a date. The page speaks English, so its dates do too. */
function written(date, options) {
  return new Intl.DateTimeFormat("en-US", options).format(date);
}

function ordinal(day) {
  const ending = day > 10 && day < 14 ? "th" : (["th", "st", "nd", "rd"][day % 10] ?? "th");
  return `${day}${ending}`;
}

function daysAway(date, now) {
  const midnight = (each) => Date.UTC(each.getFullYear(), each.getMonth(), each.getDate());
  return Math.round((midnight(date) - midnight(now)) / DAY);
}

function ago(date, now) {
  const seconds = Math.round((now - date) / 1000);
  for (const [unit, size] of UNITS) {
    const count = Math.floor(Math.abs(seconds) / size);
    if (!count) continue;
    const words = `${count} ${unit}${count === 1 ? "" : "s"}`;
    return seconds > 0 ? `${words} ago` : `in ${words}`;
  }
  return "just now";
}

// https://docs.slack.dev/messaging/formatting-message-text#date-formatting
const TOKENS = {
  date_num: (date) =>
    [date.getFullYear(), date.getMonth() + 1, date.getDate()]
      .map((each) => String(each).padStart(2, "0"))
      .join("-"),
  date_slash: (date) => written(date, { year: "numeric", month: "2-digit", day: "2-digit" }),
  date: (date) =>
    `${written(date, { month: "long" })} ${ordinal(date.getDate())}, ${date.getFullYear()}`,
  date_short: (date) => written(date, { month: "short", day: "numeric", year: "numeric" }),
  date_long: (date) => `${written(date, { weekday: "long" })}, ${TOKENS.date(date)}`,
  date_long_full: (date) => written(date, { month: "long", day: "numeric", year: "numeric" }),
  time: (date) => written(date, { hour: "numeric", minute: "2-digit" }),
  time_secs: (date) => written(date, { hour: "numeric", minute: "2-digit", second: "2-digit" }),
  ago,
};
const NEAR = new Map([
  [0, "today"],
  [-1, "yesterday"],
  [1, "tomorrow"],
]);

function dayDivider(date, now) {
  const long = TOKENS.date_long(date);
  return date.getFullYear() === now.getFullYear() ? long.replace(/, \d+$/, "") : long;
}

/**
 * Fill Slack's date tokens; one that is not known stays as it is.
 * @param {Date} date
 * @param {string} pattern such as "{date_short_pretty} at {time}"
 * @param {Date} [now]
 */
export function formatDate(date, pattern, now = new Date()) {
  return pattern.replace(/\{(\w+)\}/g, (whole, token) => {
    const plain = token.replace(/_pretty$/, "");
    const near = plain === token ? undefined : NEAR.get(daysAway(date, now));
    if (near) return near;
    if (token === "day_divider_pretty") return dayDivider(date, now);
    return Object.hasOwn(TOKENS, plain)
      ? TOKENS[plain](date, now).replaceAll("\u202f", " ")
      : whole;
  });
}

/** Return words with a capital, as they begin a line. */
export function capital(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** Return the moment of a Slack `ts`, or of seconds since 1970. */
export function moment(ts) {
  return new Date(Number(ts) * 1000);
}

/** Return a moment as an element that stays true while the page is open. */
export function time(date, pattern, { begins = false } = {}) {
  const full = formatDate(date, "{date_long} at {time_secs}");
  const data = begins ? { pattern, begins: "yes" } : { pattern };
  const shown = make("time", { datetime: date.toISOString(), title: full, data });
  write(shown, new Date());
  return shown;
}

function write(shown, now) {
  const plain = formatDate(new Date(shown.dateTime), shown.dataset.pattern, now);
  const words = shown.dataset.begins ? capital(plain) : plain;
  if (shown.textContent !== words) shown.textContent = words;
}

/** Return the element for `<!date^stamp^pattern^link|fallback>`. */
export function slackDate(stamp, pattern, url, fallback) {
  const date = moment(stamp);
  if (!stamp || Number.isNaN(date.getTime()) || !pattern)
    return document.createTextNode(fallback ?? "");
  const shown = time(date, pattern);
  return url && isLink(url) ? link(url, shown) : shown;
}

/** Write every moment on the page anew: "2 minutes ago" turns into 3, and "today" into yesterday. */
export function refreshDates() {
  const now = new Date();
  for (const shown of document.querySelectorAll("time[data-pattern]")) write(shown, now);
}
