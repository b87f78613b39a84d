"""Readers of the site can tell colors apart, and pictures and links have texts and targets."""

import re

import pytest
from pages import DOCS, ROOT

#: Backgrounds of the theme of the site, behind pages and behind boxes.
BACKGROUNDS = {"light": ("#ffffff", "#f3f4f5"), "dark": ("#14181e", "#29313d")}
#: Least contrasts of text and of the parts of drawings (WCAG 2.2, AA).
TEXT, DRAWING = 4.5, 3.0
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted((DOCS / "inside").glob("*.md"))]
#: Drawn by hand; the pictures of measurements are drawn by `benches/python/pictures.py`.
DRAWINGS = [
    path for path in sorted((DOCS / "images").glob("*.svg")) if "matplotlib" not in path.read_text("utf-8")
]
BLOCK = re.compile(r"^(```|:::).*?^\1", re.MULTILINE | re.DOTALL)


def luminance(color):
    """The relative luminance of a color such as "#0b6e8f"."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    """The ratio of the luminances of two colors, from 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrasts_are_those_of_the_standard():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
    assert contrast("#0b6e8f", "#0b6e8f") == 1


@pytest.mark.parametrize("mode", BACKGROUNDS)
def test_colors_of_the_site_stand_out(mode):
    style = (DOCS / "_static" / "shoal.css").read_text(encoding="utf-8")
    rule = re.search(rf'html\[data-theme="{mode}"\] \{{(.*?)\}}', style, re.DOTALL)
    colors = dict(re.findall(r"(--pst-color-\w+): (#[0-9a-f]{6});", rule[1]))
    assert {"--pst-color-primary", "--pst-color-link", "--pst-color-accent"} <= colors.keys()
    found = {
        (name, behind): contrast(color, behind)
        for name, color in colors.items()
        for behind in BACKGROUNDS[mode]
    }
    assert {pair: ratio for pair, ratio in found.items() if ratio < TEXT} == {}


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda path: path.name)
def test_drawings_stand_out_and_have_a_text(drawing):
    text = drawing.read_text(encoding="utf-8")
    assert len(re.search(r'aria-label="([^"]+)"', text)[1]) > 20
    # Outside of the site, drawings have these colors on white.
    for color in set(re.findall(r"#[0-9a-f]{6}", text)):
        assert contrast(color, "#ffffff") >= DRAWING, color


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_pictures_have_a_text(page):
    texts = re.findall(r"!\[([^\]]*)\]\(", page.read_text(encoding="utf-8"))
    assert all(len(text.split()) >= 3 for text in texts), texts


def anchors(page):
    """The anchors of the headings of a page."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#{1,3} (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_anchors_of_links_are_headings(page):
    links = re.findall(r"\]\(([\w./-]*\.md)?#([\w-]+)\)", page.read_text(encoding="utf-8"))
    missing = [
        f"{target}#{anchor}"
        for target, anchor in links
        if anchor not in anchors(page.parent / target if target else page)
    ]
    assert missing == []
