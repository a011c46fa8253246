"""Open a page in Chromium, narrow and wide, light and dark, and say what is wrong with it.

    rhovec demo --out demo.html; python -m reproduction page
    python tests/browser/check.py demo.html reproduction/results/index.html [--pictures FOLDER]

Needs a Chromium, which is found on the PATH or named by CHROMIUM. `tests/test_check_page.py` does this
with the report of `rhovec check`. A page fails on console errors, requests to anywhere,
horizontal overflow, texts that intersect, leave their SVG or are tiny, words of tables broken over
lines, and a contrast below 4.5.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import (  # type: ignore[import-not-found, unused-ignore]
    Page,
    sync_playwright,
)

WIDTHS = (390, 1280)
SCHEMES = ("light", "dark")

FAULTS = """() => {
  const faults = [], boxes = [];
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth > clientWidth) faults.push(`overflow: ${scrollWidth} px in ${clientWidth}`);

  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const [r, g, b, alpha = 1] = channels(getComputedStyle(e).backgroundColor);
      if (alpha === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = nodes.nextNode(); node; node = nodes.nextNode()) {
    const element = node.parentElement, words = node.data.trim();
    if (!words || element.closest("script, style, title") || !element.checkVisibility()) continue;
    const svg = element.closest("svg"), style = getComputedStyle(element);
    const range = document.createRange();
    range.selectNodeContents(node);
    const frame = svg && svg.getBoundingClientRect();
    if (element.closest("th, td") && !element.closest("code, svg"))
      for (const word of node.data.matchAll(/[^\\s/-]+/g)) {
        const part = document.createRange();
        part.setStart(node, word.index);
        part.setEnd(node, word.index + word[0].length);
        if (part.getClientRects().length > 1) faults.push(`broken: ${word[0]}`);
      }
    const rects = range.getClientRects();
    for (const box of rects) {
      if (box.width < 1) continue;
      boxes.push({ box, words, node });
      // The last line of a wrapped text may hold a single character.
      if (Math.min(rects.length > 1 ? 8 : box.width, box.height) < 8 && words.length > 1)
        faults.push(`tiny: ${words} (${box.width.toFixed(0)} x ${box.height.toFixed(0)} px)`);
      if (frame && (box.left < frame.left - 1 || box.right > frame.right + 1 ||
          box.top < frame.top - 1 || box.bottom > frame.bottom + 1))
        faults.push(`outside of its SVG: ${words}`);
      if (box.right > clientWidth + 1 || box.left < -1) faults.push(`off the page: ${words}`);
    }
    const ink = channels(svg ? style.fill : style.color);
    const pair = [light(ink), light(behind(element))].sort((a, b) => b - a);
    const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (contrast < 4.5) faults.push(`contrast ${contrast.toFixed(1)}: ${words}`);
  }
  boxes.sort((a, b) => a.box.top - b.box.top);
  boxes.forEach(({ box, words, node }, i) => {
    for (let j = i + 1; j < boxes.length && boxes[j].box.top < box.bottom; j++) {
      const other = boxes[j].box;
      const wide = Math.min(box.right, other.right) - Math.max(box.left, other.left);
      const high = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
      if (node !== boxes[j].node && wide > 1 && high > 2)
        faults.push(`intersect: ${words} | ${boxes[j].words}`);
    }
  });
  return faults;
}"""


def faults(page: Page, path: Path, picture: Path | None) -> list[str]:
    """What is wrong with a page as the browser shows it now."""
    found: list[str] = []
    page.on("console", lambda message: found.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: found.append(f"error: {error}"))
    page.on(
        "request",
        lambda request: (
            request.url.startswith(("file:", "data:")) or found.append(f"request: {request.url}")
        ),
    )
    page.goto(path.resolve().as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true })")
    shown: list[Any] = page.evaluate(FAULTS)
    for drawing in filter(lambda svg: svg.is_visible(), page.query_selector_all("svg")):
        drawing.scroll_into_view_if_needed()
        drawing.hover()  # what it tells then must fit, too
    shown += [fault for fault in page.evaluate(FAULTS) if fault not in shown]
    if picture:
        page.screenshot(path=str(picture), full_page=True)
    return found + shown


def chromium() -> str:
    """The browser: the one that CHROMIUM names, or one on the PATH."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise RuntimeError(
            "there is no Chromium: install it (apt-get install chromium), or name one by CHROMIUM=..."
        )
    return found


def check(pages: Sequence[Path], pictures: Path | None = None) -> dict[str, list[str]]:
    """What is wrong with pages, for each of them in each width and colour scheme."""
    out = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for path in pages:
            for width in WIDTHS:
                for scheme in SCHEMES:
                    page = browser.new_page(
                        viewport={"width": width, "height": 900}, color_scheme=scheme
                    )
                    name = f"{path.stem}-{width}-{scheme}.png"
                    found = faults(page, path, pictures and pictures / name)
                    page.close()
                    out[f"{path}, {width} px, {scheme}"] = found
        browser.close()
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description="Check pages in Chromium.")
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--pictures", type=Path, help="folder for screenshots")
    options = parser.parse_args()
    results = check(options.pages, options.pictures)
    for view, found in results.items():
        print(f"{view}: {len(found) or 'no'} faults")
        print(*(f"  {fault}" for fault in found), sep="\n", end="\n" if found else "")
    return 1 if any(results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
