"""Pages that are one file."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from rhovec.pages import COLOURS, GREY, STYLE, Cell, captioned, document, table


def luminance(colour: str) -> float:
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_colours_are_seen_in_light_and_dark() -> None:
    schemes = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", part)) for part in STYLE.split("@media", 2)[:2]
    ]
    assert len(schemes) == 2 and schemes[0]["page"] != schemes[1]["page"]
    for scheme in schemes:
        for name in ("ink", "soft", "accent", "good", "bad", "worse"):
            assert contrast(scheme[name], scheme["page"]) >= 4.5, name
            assert contrast(scheme[name], scheme["raised"]) >= 4.5, name
        for colour in (*COLOURS, GREY):
            assert contrast(colour, scheme["page"]) >= 3, colour


def test_a_page_is_well_formed_and_says_what_it_is_given() -> None:
    rows = [
        (Cell("<b>x</b>"), Cell("1", "number", 'from "a" & <b>')),
        (Cell("y"), Cell("", "number")),
    ]
    body = [table(("name", "a < b"), rows), captioned("<svg/>", "one & two")]
    root = ET.fromstring(document("a <title>", body, "p > a { color: red; }"))
    assert root.findtext("head/title") == "a <title>"
    assert [e.text for e in root.iter("th")] == ["name", "a < b", None, "y"]
    first, second = root.iter("td")
    assert (first.text, first.get("title"), second.text) == ("1", 'from "a" & <b>', None)
    assert first.get("data-name") == "a < b" and first.get("class") == "number"
    assert root.find(".//thead/tr/th[2]").get("class") == "number"  # type: ignore[union-attr]
    assert root.findtext(".//figcaption") == "one & two"
    assert root.find(".//script") is None
    assert document("t", [], script="a && b").count("<script>a && b</script>") == 1
