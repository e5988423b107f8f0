"""How the sandbox's page looks, in a real browser: on a phone, to screen readers, and how soon."""

import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from playwright.async_api import Locator, expect

from sandbox.scenarios import Scenario
from sandbox.slack_objects import Message
from tests.browser import MILLISECONDS, PHONE, PageWorld, Window, within_limit
from tests.page_content import SCRIPT, has_everything

pytestmark = pytest.mark.asyncio(loop_scope="session")


# ── On a phone ────────────────────────────────────────────────────────────────────────────────

# Whatever reaches further than the screen, unless it scrolls by itself in what holds it.
_TOO_WIDE: Final = """() => {
  const width = document.documentElement.clientWidth;
  const scrolls = (node) => {
    for (let each = node.parentElement; each; each = each.parentElement) {
      const { overflowX } = getComputedStyle(each);
      if (overflowX === "auto" || overflowX === "scroll" || overflowX === "hidden") return true;
    }
    return false;
  };
  const found = [...document.querySelectorAll("body *")].filter((node) => {
    if (!node.checkVisibility() || node.closest("[inert]")) return false;
    const box = node.getBoundingClientRect();
    return box.width > 1 && (box.right > width + 1 || box.left < -1) && !scrolls(node);
  });
  const scrolling = [...document.querySelectorAll("body, .scroller, dialog, .view-body")]
    .filter((node) => node.checkVisibility() && node.scrollWidth > node.clientWidth + 1);
  return [document.documentElement.scrollWidth > width, ...found, ...scrolling]
    .filter(Boolean).map((each) => each === true ? "the page" : each.outerHTML.slice(0, 100));
}"""


async def _fits(window: Window) -> None:
    assert await window.tab.evaluate(_TOO_WIDE) == []


async def test_everything_can_be_reached_on_a_phone_and_nothing_overflows(
    page_world: PageWorld,
) -> None:
    await has_everything(page_world)
    page_world.ben.say("W" * 400 + " https://example.com/" + "w" * 300)
    ana = await page_world.window("ana", PHONE, is_mobile=True, has_touch=True)
    await expect(ana.card("WWWW")).to_be_visible()
    await _fits(ana)

    menu = ana.tab.get_by_role("button", name="Channels and people")
    await menu.tap()
    await expect(menu).to_have_attribute("aria-expanded", "true")
    await _fits(ana)
    lobby = ana.tab.get_by_role("navigation").get_by_role("button", name="lobby")
    await lobby.tap()
    await expect(ana.tab.get_by_role("heading", level=1)).to_have_text("lobby")
    await expect(lobby).not_to_be_in_viewport()
    await menu.tap()
    await ana.tab.get_by_role("navigation").get_by_role("button", name=re.compile("^studio")).tap()

    bar = ana.card("Kim's first day").get_by_role("button", name="1 reply")
    await bar.tap()
    await expect(ana.replies()).to_have_count(2)
    await expect(ana.replies().nth(1)).to_be_in_viewport()
    await _fits(ana)
    await ana.thread.get_by_role("button", name="Close the thread").tap()
    await expect(ana.thread).to_be_hidden()

    await ana.tab.get_by_role("button", name="Behind the scenes").tap()
    await expect(ana.panel).to_be_in_viewport(ratio=0.5)
    for tab in await ana.panel.get_by_role("tab").all():
        await tab.tap()
        await _fits(ana)
    await ana.panel.get_by_role("button", name="Close the panel").tap()

    await ana.composer.fill("/video ")
    await ana.tab.get_by_role("button", name="Send").tap()
    await expect(ana.modal.get_by_label("Script")).to_be_visible()
    await ana.modal.get_by_label("A web page").tap()
    await expect(ana.modal.get_by_label("Web page link")).to_be_visible()
    await _fits(ana)
    await ana.presses("Create")
    await expect(ana.modal.get_by_text("complete this required").first).to_be_in_viewport()
    await _fits(ana)


async def test_on_a_phone_choosing_the_current_channel_closes_the_list(
    page_world: PageWorld,
) -> None:
    ana = await page_world.window("ana", PHONE, is_mobile=True, has_touch=True)
    menu = ana.tab.get_by_role("button", name="Channels and people")
    await menu.tap()
    here = ana.tab.get_by_role("navigation").locator("[aria-current=page]")
    await here.tap()
    await expect(menu).to_have_attribute("aria-expanded", "false")
    await expect(here).not_to_be_in_viewport()


# ── To eyes ───────────────────────────────────────────────────────────────────────────────────

# The contrast of each text with what lies under it, where that is less than what people can read:
# https://www.w3.org/TR/WCAG22/#contrast-minimum
_FAINT: Final = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (top, under) => top.slice(0, 3)
    .map((part, at) => part * top[3] + under[at] * (1 - top[3])).concat(1);
  const ground = (node) => {
    const layers = [];
    for (let each = node; each; each = each.parentElement) {
      layers.push(rgba(getComputedStyle(each).backgroundColor));
      if (layers.at(-1)[3] === 1) break;
      if (each.matches("dialog")) break;
    }
    return layers.reverse().reduce((under, top) => over(top, under), rgba("Canvas"));
  };
  const light = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue].map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = new Map();
  const look = (node, words, style) => {
    const under = ground(node);
    let solid = rgba(style.color);
    for (let each = node; each; each = each.parentElement) {
      solid = [...solid.slice(0, 3), solid[3] * getComputedStyle(each).opacity];
    }
    const [one, other] = [light(over(solid, under)), light(under)].sort((a, b) => b - a);
    const contrast = (one + 0.05) / (other + 0.05);
    const size = parseFloat(style.fontSize), isBold = style.fontWeight >= 700;
    const enough = size >= 24 || (isBold && size >= 18.66) ? 3 : 4.5;
    if (contrast < enough) found.set(`${node.className || node.tagName}: ${words.slice(0, 30)}`,
      Math.round(contrast * 100) / 100);
  };
  const isOff = (node) => node.closest(":disabled, .visually-hidden, [inert], .skip")
    || !node.checkVisibility({ opacityProperty: true });
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    const words = texts.currentNode.data.trim();
    if (words && !isOff(node)) look(node, words, getComputedStyle(node));
  }
  for (const node of document.querySelectorAll(".text, .combobox-text, .composer-text")) {
    if (isOff(node)) continue;
    if (node.placeholder) look(node, node.placeholder, getComputedStyle(node, "::placeholder"));
    if (node.value) look(node, node.value, getComputedStyle(node));
  }
  return Object.fromEntries(found);
}"""


async def _is_legible(window: Window) -> None:
    # A colour that still changes is not the one that is read.
    await window.tab.evaluate(
        "() => Promise.allSettled(document.getAnimations().map(each => each.finished))"
    )
    assert await window.tab.evaluate(_FAINT) == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_is_legible(page_world: PageWorld, scheme: str) -> None:
    await has_everything(page_world)
    page_world.ben.say("You there, @ana?", "lobby")
    ana = await page_world.window(color_scheme=scheme)
    await expect(ana.card("You have not").or_(ana.card("Your videos"))).to_be_visible()
    grounds = "() => getComputedStyle(document.body).backgroundColor"
    assert (await ana.tab.evaluate(grounds)) not in {"", "rgba(0, 0, 0, 0)"}
    await _is_legible(ana)
    await ana.opens_thread(ana.card("Kim's first day"))
    await _is_legible(ana)
    for tab in ("Jobs", "Video service", "Slack", "Wire"):
        await ana.looks_behind(tab)
        await ana.panel.locator("details").first.evaluate("node => node.open = true")
        await _is_legible(ana)
    await ana.types("/vidoe")
    await expect(ana.tab.get_by_text("/vidoe is not a command")).to_be_visible()
    await ana.composer.fill("/")
    commands = ana.tab.get_by_role("listbox", name="Commands")
    await expect(commands.get_by_role("option")).to_have_count(2)
    await _is_legible(ana)
    form = await ana.opens_form("/video")
    await form.get_by_label("A web page").check()
    await expect(form.get_by_label("Web page link")).to_be_visible()
    await ana.presses("Create")
    await form.get_by_label("Replica").press("ArrowDown")
    await expect(form.get_by_role("option")).not_to_have_count(0)
    await _is_legible(ana)


async def test_nothing_moves_for_users_who_prefer_reduced_motion(page_world: PageWorld) -> None:
    ana = await page_world.window(reduced_motion="reduce")
    await ana.asks(SCRIPT)
    await ana.looks_behind("Jobs")
    await ana.opens_form()
    moving = """() => [...document.querySelectorAll("*")].filter((node) => {
      const style = getComputedStyle(node);
      const longest = (times) => Math.max(...times.split(",").map(parseFloat));
      const takes = Math.max(longest(style.animationDuration), longest(style.transitionDuration));
      const goesOn = style.animationName !== "none" && style.animationIterationCount === "infinite";
      return takes > 0.01 || goesOn || style.scrollBehavior === "smooth";
    }).map((node) => node.outerHTML.slice(0, 100))"""
    assert await ana.tab.evaluate(moving) == []


# ── To screen readers ─────────────────────────────────────────────────────────────────────────

# Elements that need a name although they cannot have the focus.
_NAMED: Final = frozenset(
    {"alertdialog", "complementary", "dialog", "image", "img", "listbox", "progressbar", "tabpanel"}
)
_WRONG_IDS: Final = """() => {
  const all = [...document.querySelectorAll("[id]")].map((node) => node.id);
  const twice = all.filter((id, at) => all.indexOf(id) !== at);
  const names = ["aria-labelledby", "aria-describedby", "aria-controls", "aria-activedescendant",
    "for"];
  const lost = names.flatMap((name) => [...document.querySelectorAll(`[${name}]`)].flatMap((node) =>
    node.getAttribute(name).split(" ").filter((id) => id && !document.getElementById(id))
      .map((id) => `${name}=${id} on ${node.outerHTML.slice(0, 80)}`)));
  return [...twice, ...lost];
}"""


async def _is_named(window: Window) -> None:
    """Find a name on each control and landmark, as a screen reader would read it out."""
    session = await window.tab.context.new_cdp_session(window.tab)
    tree = await session.send("Accessibility.getFullAXTree")
    await session.detach()
    nameless = [
        node
        for node in tree["nodes"]
        if not node.get("ignored") and _needs_name(node) and not _value(node, "name").strip()
    ]
    assert nameless == []
    assert await window.tab.evaluate(_WRONG_IDS) == []


def _needs_name(node: dict[str, Any]) -> bool:
    # Long text that scrolls takes the focus too, and is its own name.
    takes_focus = {"name": "focusable", "value": {"type": "booleanOrUndefined", "value": True}}
    role = _value(node, "role")
    return role in _NAMED or (takes_focus in node.get("properties", []) and role != "generic")


def _value(node: dict[str, Any], name: str) -> str:
    return str(node.get(name, {}).get("value", ""))


async def test_everything_that_can_be_used_has_a_name(page_world: PageWorld) -> None:
    await has_everything(page_world)
    ana = await page_world.window()
    await ana.opens_thread(ana.card("Kim's first day"))
    await _is_named(ana)
    for tab in ("Jobs", "Video service", "Slack", "Wire"):
        await ana.looks_behind(tab)
        await ana.panel.locator("details").first.evaluate("node => node.open = true")
        await _is_named(ana)
    form = await ana.opens_form()
    await form.get_by_label("Replica").press("ArrowDown")
    await expect(form.get_by_role("option")).not_to_have_count(0)
    await _is_named(ana)
    levels = await ana.tab.get_by_role("heading", level=1).all_inner_texts()
    assert levels in (["studio"], []), "one heading says where one is, or a modal is before it"


async def test_a_form_is_a_dialog_that_keeps_the_focus_and_gives_it_back(
    page_world: PageWorld,
) -> None:
    page_world.service.next_video(Scenario(end="error", reason="The replica is shy"))
    ana = await page_world.window()
    card = await ana.asks(SCRIPT)
    await page_world.advance(minutes=3)
    button = card.get_by_role("button", name="Edit and retry")
    await button.click()
    await expect(ana.tab.get_by_role("dialog", name="Create a video")).to_be_visible()
    for key in ("Tab", "Shift+Tab"):
        for _ in range(16):
            await ana.tab.keyboard.press(key)
            assert await ana.modal.evaluate("node => node.contains(document.activeElement)")
    # The button that opened it is drawn again meanwhile.
    [message] = page_world.slack.messages("studio")
    page_world.slack.edit(message, text="", blocks=message.blocks, metadata=message.metadata)
    await expect(card.get_by_text("(edited)")).to_have_attribute("title", re.compile("9:03:00 AM"))
    await ana.tab.keyboard.press("Escape")

    await expect(ana.modal).to_be_hidden()
    await expect(button).to_be_focused()


async def test_a_new_message_is_announced_to_screen_readers(page_world: PageWorld) -> None:
    ana = await page_world.window()
    page_world.ben.say("Has anybody seen the numbers?")
    said = ana.tab.get_by_role("log")
    await expect(said).to_contain_text("ben")
    await expect(said).to_contain_text("Has anybody seen the numbers?")


# ── In time ───────────────────────────────────────────────────────────────────────────────────

_MANY: Final = 500
# What is wanted is a third of it: machines are shared, and this is against gross failure.
_LIMITS: Final = {"first paint": 3_000.0, "its messages": 3_000.0}
_CLICK: Final = 600.0
# A machine may be busy for a moment: then it is tried again.
_TRIES: Final = 3

_LOADED: Final = """() => new Promise((resolve) => {
  const [first] = performance.getEntriesByName("first-contentful-paint");
  new PerformanceObserver((list) => resolve({
    "first paint": first.startTime,
    "its messages": list.getEntries().at(-1).startTime,
  })).observe({ type: "largest-contentful-paint", buffered: true });
})"""
# Does something, and returns how many milliseconds it took until what is awaited was painted.
_TIMED: Final = """(node, [awaited, words]) => new Promise((resolve) => {
  const isThere = () => {
    const found = document.querySelector(awaited);
    return Boolean(found?.checkVisibility() && found.textContent.includes(words));
  };
  const observer = new MutationObserver(() => {
    if (!isThere()) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => {
      resolve(performance.measure("click", { start: "click" }).duration);
    }));
  });
  observer.observe(document, {
    childList: true, subtree: true, attributes: true, characterData: true,
  });
  performance.mark("click");
  if (node.form) node.form.requestSubmit(); else node.click();
})"""


async def _takes(act: Locator, awaited: str, words: str = "") -> float:
    """Do something and return how many milliseconds later what is awaited was there to be seen."""
    return float(await within_limit(act.evaluate(_TIMED, [awaited, words])))


async def test_the_page_is_quick_with_many_messages(
    page_world: PageWorld, record_property: Callable[[str, object], None]
) -> None:
    await has_everything(page_world)
    _has_many(page_world)
    best: dict[str, float] = {}
    for _ in range(_TRIES):
        took = await _all_times(page_world)
        best = {what: min(each, best.get(what, each)) for what, each in took.items()}
        slow = {what for what, each in best.items() if each > _LIMITS.get(what, _CLICK)}
        if not slow:
            break
    record_property(MILLISECONDS, {what: round(each) for what, each in best.items()})
    assert slow == set()


async def _all_times(page_world: PageWorld) -> dict[str, float]:
    """Return how many milliseconds the page took, by what for."""
    ana = await page_world.window()
    await expect(ana.card(f"Message {_MANY - 1}")).to_be_visible()
    took: dict[str, float] = await within_limit(ana.tab.evaluate(_LOADED))
    seen = [*page_world.slack.messages("studio"), *page_world.slack.ephemerals("ana", "studio")]
    await expect(ana.tab.locator("#messages > .message")).to_have_count(len(seen))
    assert took.keys() == _LIMITS.keys()

    places, last = ana.tab.get_by_role("navigation"), "#messages > .message:last-child"
    lobby, studio = (places.get_by_role("button", name=name) for name in ("lobby", "studio"))
    newest = await ana.tab.locator(last).inner_text()
    took["another channel"] = await _takes(lobby, "#channel-name", "lobby")
    took["back to all of them"] = await _takes(studio, last, newest.splitlines()[-1])
    thread = ana.card("Kim's first day").first.get_by_role("button", name="1 reply")
    took["a thread"] = await _takes(thread, "#thread .message + .message", "is ready")
    button = ana.card("The replica is shy").first.get_by_role("button", name="Edit and retry")
    took["a button"] = await _takes(button, last, "Only @ben or an admin")
    await ana.composer.fill("/video Hello")
    took["a command"] = await _takes(ana.composer, "#modal[open] .view", "Create a video")
    await ana.presses("Cancel")
    await expect(ana.modal).to_be_hidden()
    await ana.composer.fill("A word of one's own")
    took["a message"] = await _takes(ana.composer, last, "A word of one's own")
    return took


def _has_many(world: PageWorld) -> None:
    """Fill the channel with more of the same: cards and what people say."""
    cards, studio = world.slack.messages("studio"), world.slack.channel("studio").id
    while (number := len(world.slack.messages("studio"))) < _MANY:
        if number % 2:
            world.ben.say(f"Message {number}, *see* https://example.com/{number} :tada:")
        else:
            like = cards[number % len(cards)]
            copy = Message(studio, "", like.user, like.text, like.blocks, like.is_from_bot)
            world.slack.post(copy)
