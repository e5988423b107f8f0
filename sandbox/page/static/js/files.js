// The field for files: each is uploaded as soon as it is chosen, as Slack's client does it.

import { upload } from "./api.js";
import { fill, make } from "./dom.js";
import { icon } from "./icons.js";

// https://docs.slack.dev/reference/block-kit/block-elements/file-input-element
const MOST_BYTES = 10_000_000;
const MOST_FILES = 10;

const ending = (name) => (name.includes(".") ? name.split(".").pop().toLowerCase() : "");

/** Return a size for people, such as "12 KB". */
export function sizeWords(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  if (bytes < 1_000_000) return `${Math.round(bytes / 1000)} KB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}

/**
 * Return the control of a `file_input`.
 * @param {Object} element
 * @param {import("./controls.js").Frame} frame
 * @returns {import("./controls.js").Control}
 */
export function filesControl(element, frame) {
  const most = element.max_files ?? MOST_FILES;
  const types = element.filetypes ?? [];
  let files = frame.state?.files ?? [];
  /** @type {Set<File>} those that are being uploaded */
  const underway = new Set();

  const input = make("input.file-input", {
    id: frame.id,
    type: "file",
    multiple: most > 1,
    accept: types.map((each) => `.${each}`).join(",") || null,
    ...frame.labels,
  });
  const face = make("span.button", { "aria-hidden": "true" }, icon("file"), "Upload file");
  const list = make("ul.files", { role: "list" });
  const status = make("span.visually-hidden", { role: "status" });
  const node = make("div.file-field", {}, list, make("label.file-pick", {}, input, face), status);

  /** Return why a client does not take a file, or "". */
  function refusal(file) {
    if (types.length && !types.includes(ending(file.name))) {
      return `${file.name} can't be uploaded here. Choose a file of type ${types.join(", ")}.`;
    }
    if (file.size > MOST_BYTES) return `${file.name} is larger than 10 MB. Choose a smaller file.`;
    return "";
  }

  async function take(chosen) {
    const refused = chosen.map(refusal).filter(Boolean);
    if (files.length + underway.size + chosen.length > most) {
      refused.push(`No more than ${most === 1 ? "one file" : `${most} files`} can be uploaded.`);
    }
    if (refused.length) {
      frame.refuse(refused.join(" "));
      return;
    }
    frame.refuse("");
    for (const each of chosen) underway.add(each);
    draw();
    await Promise.all(chosen.map(send));
  }

  async function send(file) {
    const outcome = await upload(file);
    const isWanted = underway.delete(file);
    if (outcome.ok && isWanted) files = [...files, outcome.file];
    draw();
    if (outcome.ok) {
      status.textContent = isWanted ? `${file.name} is uploaded.` : "";
      frame.onChange(true);
    } else {
      frame.refuse(outcome.error.text);
    }
  }

  function row(name, about, onclick) {
    const remove = { type: "button", "aria-label": `Remove ${name}`, onclick };
    return make(
      "li.file",
      {},
      icon("file"),
      make("span.file-name", {}, name),
      make("span.file-about", {}, about),
      make("button.icon-button", remove, icon("close")),
    );
  }

  function draw() {
    const hadFocus = node.contains(document.activeElement);
    fill(
      list,
      files.map((each) =>
        row(each.name, sizeWords(each.size), () => {
          files = files.filter((other) => other !== each);
          status.textContent = `${each.name} is removed.`;
          draw();
          frame.onChange(true);
        }),
      ),
      [...underway].map((each) =>
        row(each.name, "Uploading…", () => {
          underway.delete(each);
          draw();
        }),
      ),
    );
    const isFull = files.length + underway.size >= most;
    list.hidden = !list.children.length;
    input.parentElement.hidden = isFull;
    if (hadFocus) (isFull ? list.querySelector("button") : input).focus();
  }

  input.addEventListener("change", () => {
    const chosen = [...input.files];
    // The same file can be chosen again.
    input.value = "";
    take(chosen);
  });
  draw();
  return {
    node,
    input,
    state: () => ({ type: element.type, files }),
    wrong: () => (underway.size ? "Wait until the file is uploaded." : ""),
  };
}
