"""A figure of matplotlib as part of a page: real text, in the page's own colours, and nothing from elsewhere."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

from matplotlib.figure import Figure

from fedpareto.report.style import render

COLOURS = {"#000000": "currentColor", "#ffffff": "var(--paper)", "#e6e6e6": "var(--edge)"}
"""What becomes of colours that are right on white paper only."""
TAG = re.compile("<[^>]+>")
DIGITS = re.compile(r"(\d\.\d)\d+(?![\de])")
"""Of a place, to a tenth of a point."""


def inline_svg(figure: Figure, name: str, alt: str, colours: Mapping[str, str] | None = None) -> str:
    """The element `<svg>`; `name` keeps its ids apart from those of others, `alt` says what is to be seen."""
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    text = render(figure, "svg", as_text=True).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    for old, new in (COLOURS | dict(colours or {})).items():
        text = re.sub(old, new, text, flags=re.IGNORECASE)
    text = TAG.sub(lambda tag: DIGITS.sub(r"\1", tag[0]), text)  # Not in what is read: ticks have digits too.
    text = re.sub(r"\s*\n\s*", "\n", text)
    size = r'<svg [^>]*?viewBox="([^"]*)"[^>]*>'
    return re.sub(size, rf'<svg class="chart" viewBox="\1" role="img" aria-label="{html.escape(alt)}">', text, count=1)
