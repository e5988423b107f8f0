// Keeps the page of a video that is not ready up to date, and shows the video once it is.

const INTERVAL_MILLISECONDS = 2000;
const state = document.querySelector(".state");

async function look() {
  const response = await fetch(location.href, { cache: "no-store" });
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const now = page.querySelector(".state");
  if (!now) location.reload();
  else if (now.textContent !== state.textContent) state.textContent = now.textContent;
}

// The sandbox may have ended.
setInterval(() => look().catch(() => {}), INTERVAL_MILLISECONDS);
