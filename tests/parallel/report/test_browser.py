"""A report as a reader opens it: in a browser, wide and narrow, light, dark and printed."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringside.report.write import write_report
from tests.parallel.report.browser import Browser, chromium, needs_chromium
from tests.unit.report.bout import bout, mixed_bout
from tests.unit.report.hostile import hostile

pytestmark = needs_chromium

OVERFLOWING = """
[...document.querySelectorAll('body *')].filter(e => {
  const box = e.getBoundingClientRect();
  if (!box.width || e.closest('.scroll, pre, svg') !== null && !e.matches('.scroll, pre, svg'))
    return false;
  return box.right > innerWidth + 0.5 || box.left < -0.5 && !e.matches('.skip');
}).map(e => e.outerHTML.slice(0, 120))
"""
# Smallest text of the plots as it is drawn, in CSS pixels.
SMALLEST_LETTERS = """
Math.min(...[...document.querySelectorAll('svg text')].map(t => {
  const drawn = t.getScreenCTM();  // turned labels have their scale in b
  return parseFloat(getComputedStyle(t).fontSize) * Math.hypot(drawn.a, drawn.b);
}))
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One headless Chromium for all tests of this file."""
    with chromium(tmp_path_factory.mktemp("chromium") / "profile") as started:
        yield started


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the made-up bout."""
    return write_report(bout(), tmp_path_factory.mktemp("bout"))


@pytest.fixture(scope="module")
def mixed_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of arms that are certified, failed, not verified, and verified elsewhere."""
    return write_report(mixed_bout(), tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of records full of markup."""
    return write_report(hostile(), tmp_path_factory.mktemp("hostile"))


def rgb(css: str) -> tuple[int, ...]:
    """`rgb(1, 2, 3)` as numbers."""
    return tuple(int(part) for part in css[css.index("(") + 1 : -1].split(",")[:3])


def luminance(colour: tuple[int, ...]) -> float:
    """Relative luminance, as WCAG defines it."""
    linear = [
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4
        for c in (part / 255 for part in colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def complaints(browser: Browser, page: Path) -> list[object]:
    """Console messages, exceptions, dialogs, and whatever was asked for besides the page."""
    wrong: list[object] = []
    for event in browser.events:
        method, params = event.get("method"), event.get("params", {})
        if method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            wrong.append(params)
        if method in ("Page.javascriptDialogOpening", "Network.webSocketCreated"):
            wrong.append(params)
        if method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if url != page.resolve().as_uri() and url != "data:,":
                wrong.append(url)
    return wrong


def colours(png: bytes) -> int:
    """How many different bytes a PNG's pixels hold: 1 or 2 where a page is blank."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    data, position = b"", 8
    while position < len(png):
        (length,) = struct.unpack(">I", png[position : position + 4])
        if png[position + 4 : position + 8] == b"IDAT":
            data += png[position + 8 : position + 8 + length]
        position += 12 + length
    return len(set(zlib.decompress(data)))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_page_is_whole_at_this_width(browser: Browser, page: Path, width: int, scheme: str) -> None:
    """No error, no request, nothing wider than the screen, letters that can be read."""
    browser.open(page, width=width, scheme=scheme)

    assert complaints(browser, page) == []
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate(OVERFLOWING) == []
    assert browser.evaluate(SMALLEST_LETTERS) >= 8
    assert browser.evaluate("document.querySelectorAll('section > h2').length") >= 16
    assert colours(browser.screenshot()) > 50


def test_wide_table_needs_no_scrolling_on_a_wide_screen(browser: Browser, page: Path) -> None:
    """At 1280 px the whole main table is seen at once; at 390 px it scrolls in its own box."""
    box = "document.querySelector('.scroll.results')"

    browser.open(page, width=1280)
    assert browser.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")
    browser.open(page, width=390)
    assert browser.evaluate(f"{box}.scrollWidth > {box}.clientWidth")
    assert browser.evaluate(f"({box}.scrollLeft = 200, {box}.scrollLeft)") == 200
    first = "document.querySelector('.results tbody th').getBoundingClientRect().left"
    assert browser.evaluate(f"{first} < 40")  # the name of the arm stays in sight


def test_first_screen_answers_everything(browser: Browser, mixed_page: Path) -> None:
    """Who wins, by how much, how sure, whether it is the same: all seen without scrolling."""
    browser.open(mixed_page, width=1280, height=800)

    bottom = "document.querySelector('.grounds').getBoundingClientRect().bottom"
    assert browser.evaluate(f"{bottom} < 800")
    shown = browser.evaluate("document.querySelector('#finding').innerText")
    for word in ("2 replicas", "×", "95 % interval", "launches", "Noise floor"):
        assert word in shown
    assert "Same arithmetic" in shown


def test_words_say_what_colours_say(browser: Browser, page: Path) -> None:
    """Every cell of the verdict matrix has an interval; what serial was asked about has a word."""
    browser.open(page, width=1280)

    cells = browser.evaluate(
        "[...document.querySelectorAll('.verdicts td')].map(e => e.innerText.trim())"
    )
    intervals = [cell for cell in cells if cell]
    assert len(intervals) == 21 + 28  # pairs of seven arms, and of eight
    assert all("×" in cell and "]" in cell for cell in intervals)
    words = ("faster", "slower", "cannot tell", "no verdict")
    assert sum(cell.endswith(words) for cell in intervals) == 7  # other arms of one replica


@pytest.mark.parametrize("width", [1280, 390])
def test_proof_is_whole_at_this_width(browser: Browser, mixed_page: Path, width: int) -> None:
    """The answer stands beside the verdicts; wide tables scroll in their own box."""
    browser.open(mixed_page, width=width)

    assert complaints(browser, mixed_page) == []
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate(OVERFLOWING) == []
    answer = "document.querySelector('.grounds')"
    assert "12 of 15 arms are certified" in browser.evaluate(f"{answer}.innerText")


def test_proof_can_be_read_without_colour(browser: Browser, mixed_page: Path) -> None:
    """Every result is a word in the text, and rows that are set apart say what they are."""
    browser.open(mixed_page, width=1280)

    apart = "[...document.querySelectorAll('.results .apart tr')].map(e => e.innerText)"
    head, *rows = browser.evaluate(apart)

    assert head.strip() == "Not comparable, and not ranked"
    assert len(rows) == 4  # with the twin of one of them
    assert all(row.count("not comparable") == 2 for row in rows)


@pytest.mark.parametrize(
    ("scheme", "paper"), [("light", (255, 255, 255)), ("dark", (24, 28, 35))], ids=["light", "dark"]
)
def test_what_is_set_apart_has_contrast(
    browser: Browser, mixed_page: Path, scheme: str, paper: tuple[int, ...]
) -> None:
    """Grey can still be read: a contrast of at least 4.5 (WCAG 2.1, 1.4.3)."""
    browser.open(mixed_page, width=1280, scheme=scheme)

    ink = browser.evaluate("getComputedStyle(document.querySelector('.results .apart td')).color")

    lighter, darker = sorted((luminance(rgb(ink)), luminance(paper)), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def test_dark_page_is_dark(browser: Browser, page: Path) -> None:
    """Page and plots follow the reader's scheme."""
    ink = "getComputedStyle(document.querySelector('figure svg text')).fill"

    browser.open(page, width=1280, scheme="light")
    light = browser.evaluate(ink)
    browser.open(page, width=1280, scheme="dark")

    assert light == "rgb(20, 23, 28)"
    assert browser.evaluate(ink) == "rgb(233, 236, 241)"
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 24)"


def test_keyboard_reaches_links_and_tables(browser: Browser, page: Path) -> None:
    """Tab goes to the way past the head first, and every box that scrolls can be focused."""
    browser.open(page, width=390)

    press(browser, "Tab", 9)

    assert browser.evaluate("document.activeElement.className") == "skip"
    assert browser.evaluate("document.activeElement.getBoundingClientRect().left >= 0")
    boxes = "[...document.querySelectorAll('.scroll, pre')]"
    assert browser.evaluate(f"{boxes}.every(e => e.tabIndex === 0)")


def press(browser: Browser, key: str, code: int, text: str = "") -> None:
    """One key, down and up."""
    typed = {"text": text} if text else {}
    for kind in ("keyDown", "keyUp"):
        browser.call(
            "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **typed
        )


def test_keyboard_reaches_every_section(browser: Browser, page: Path) -> None:
    """Tab visits a link to each section; the focus is seen; Enter goes there, and unfolds."""
    browser.open(page, width=1280)
    names = browser.evaluate("[...document.querySelectorAll('main > section')].map(e => e.id)")
    visited, outlines = [], set()
    for _ in range(1 + len(names)):
        press(browser, "Tab", 9)
        visited.append(browser.evaluate("document.activeElement.getAttribute('href')"))
        outlines.add(browser.evaluate("getComputedStyle(document.activeElement).outlineStyle"))

    assert {f"#{name}" for name in names} <= set(visited)
    assert outlines == {"solid"}
    browser.evaluate("document.querySelector('summary').focus()")
    press(browser, "Enter", 13, "\r")
    assert browser.evaluate("document.querySelector('details').open")


@pytest.mark.parametrize("width", [1280, 390])
def test_markup_in_records_is_shown_and_not_run(
    browser: Browser, hostile_page: Path, width: int
) -> None:
    """A script in every string of a record: no dialog, no element, no overflow."""
    browser.open(hostile_page, width=width)

    assert complaints(browser, hostile_page) == []
    assert browser.evaluate("document.scripts.length") == 0
    names = "document.querySelector('.results tbody th[scope=row]').getBoundingClientRect().width"
    assert browser.evaluate(f"{names} < innerWidth / 2")  # the numbers beside it stay in reach
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert "<script>alert('x')</script>" in browser.evaluate("document.body.innerText")


def test_page_prints(browser: Browser, page: Path) -> None:
    """Printing gives pages, with what is folded on a screen; no table is cut off at the right."""
    browser.open(page, width=1280)

    pdf = browser.pdf()

    assert pdf.startswith(b"%PDF-")
    assert 8 <= pdf.count(b"/Type /Page\n") <= 60
    # A4 landscape less its margins of 11 mm, at 96 pixels to the inch
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        width=1039,
        height=711,
        deviceScaleFactor=1,
        mobile=False,
    )
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.evaluate(
            "[...document.querySelectorAll('table')]"
            ".every(t => t.getBoundingClientRect().right <= 1039)"
        )
        folded = "[...document.querySelectorAll('details table')]"
        assert browser.evaluate(f"{folded}.length") >= 3
        assert browser.evaluate(f"{folded}.every(t => t.getBoundingClientRect().height > 0)")
        assert browser.evaluate(f"{folded}.every(t => t.checkVisibility())")
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")
