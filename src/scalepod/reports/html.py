"""HTML in which nothing is taken for markup that was not written as such, and that needs no other file."""

import base64
import io
from collections.abc import Sequence
from html import escape

from matplotlib.figure import Figure
from PIL import Image

from ..figures import figure_to_array

STYLE = """
:root { color-scheme: light; }
body { max-width: 62rem; margin: 0 auto; padding: 1rem; font: 16px/1.5 system-ui, sans-serif; color: #222; }
h1 { font-size: 1.6rem; line-height: 1.2; }
h2 { font-size: 1.25rem; margin-top: 2.2rem; border-bottom: 1px solid #ccc; }
h3 { font-size: 1.05rem; margin-top: 1.6rem; }
p, li, td, th, summary { overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.2rem 0.8rem 0.2rem 0; border-bottom: 1px solid #e4e4e4; vertical-align: top; }
.facts td { min-width: 7rem; }
.facts th { min-width: 6rem; }
.values td, .values th { white-space: nowrap; }
.values tbody th { position: sticky; left: 0; background: #fff; font-weight: normal; }
figure { margin: 1rem 0; }
img { display: block; width: 100%; min-width: 44rem; max-width: 1040px; height: auto; }
summary { cursor: pointer; padding: 0.3rem 0; }
.muted { color: #666; }
"""
"""A column that a phone can show; wide tables and figures scroll inside it."""


class Markup(str):
    """HTML as it stands; any other text is escaped where it enters an element."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str) -> Markup:
    """An element with its attributes and children, text of which is escaped.

    Args:
        name: Name of the element.
        children: Text, or elements.
        attributes: Values by name; a trailing underscore is taken off, as of ``class_``.

    Example:
        >>> element("p", "a < b", element("b", "!"), class_="muted")
        '<p class="muted">a &lt; b<b>!</b></p>'
    """
    told = "".join(f' {key.rstrip("_")}="{escape(value)}"' for key, value in attributes.items())
    inner = "".join(child if isinstance(child, Markup) else escape(child) for child in children)
    return Markup(f"<{name}{told}>{inner}</{name}>")


def paragraphs(sentences: Sequence[str]) -> Markup:
    """A list of sentences."""
    return element("ul", *(element("li", sentence) for sentence in sentences))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", kind: str = "values") -> Markup:
    """A table that scrolls where it is wider than the page, its caption above it; the first cell of a row names it."""
    said = element("p", caption, class_="muted") if caption else Markup()
    titles = element("thead", element("tr", *(element("th", cell) for cell in head))) if head else Markup()
    body = [element("tr", element("th", first), *(element("td", cell) for cell in rest)) for first, *rest in rows]
    cells = element("table", titles, element("tbody", *body), class_=kind)
    return Markup(said + element("div", cells, class_="scroll"))


def picture(figure: Figure, description: str) -> Markup:
    """A figure inside the page, as PNG."""
    file = io.BytesIO()
    Image.fromarray(figure_to_array(figure)).save(file, format="PNG", optimize=True)
    source = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    image = Markup(f'<img src="{source}" alt="{escape(description)}">')
    return element("figure", image, class_="scroll")


def details(title: str, *children: str) -> Markup:
    """Something that is shown when its title is clicked."""
    return element("details", element("summary", title), *children)


def page(title: str, *children: str) -> str:
    """The whole document."""
    head = element(
        "head",
        Markup('<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'),
        element("title", title),
        Markup(f"\n<style>{STYLE}</style>"),
    )
    body = element(
        "body", *(Markup(f"\n{child if isinstance(child, Markup) else escape(child)}") for child in children)
    )
    return f"<!DOCTYPE html>\n{element('html', head, Markup(f'{body}'), lang='en')}\n"
