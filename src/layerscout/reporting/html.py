"""The page: sections as one HTML file that loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup, escape

from layerscout.reporting.charts import fit_page
from layerscout.reporting.content import Section
from layerscout.reporting.sections import build_sections


def render_result(content: Mapping[str, Any], folder: str = ".") -> str:
    """Render what a verb wrote as JSON as one HTML page; see `build_sections`."""
    return render_page(*build_sections(content, folder), content)


def render_page(title: str, sections: Sequence[Section], data: Mapping[str, Any]) -> str:
    """Render one HTML page from `sections`; it loads nothing and carries `data` whole, as JSON.

    Empty sections are left out. Only the one script whose hash the page states may run, whatever
    the texts contain.
    """
    content = _bundle_script()
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return _load_template().render(
        title=title,
        sections=[section for section in sections if not section.empty],
        data=data,
        explain=Explainer(),
        script=content,
        script_hash=f"sha256-{digest}",
    )


@cache
def _bundle_script() -> str:
    """Bundle the chart libraries and the lines that draw: the one script of a page."""
    lines = (resources.files("layerscout.reporting") / "page.js").read_text(encoding="utf-8")
    return str(vl_convert.javascript_bundle(lines))


@cache
def _load_template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("layerscout.reporting", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["fit_page"] = fit_page
    # Undefined values are null in our files; a NaN would not be JSON at all.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    return environment.get_template("page.html")


# What finds a word in a text, and what it means; a plan is explained with its own numbers.
GLOSSARY = {
    r"\bstates?\b": "the output of a block; state 0 is the output of the embeddings",
    r"\btrunk\b": "the frozen blocks below the lowest tuned one, which run only once",
    r"ν": "spread within the classes over the distance between them; lower is better",
    r"ℓ\*": "the state with the best score",
    r"\((\d+), (\d+), (\d+)\)": r"blocks \1 to \2 are tuned, and the head reads state \3",
    r"\bFLOPs\b": "floating-point operations, counted, not timed",
}


class Explainer:
    """Explains each word of the glossary once: where it first stands in the texts of a page."""

    def __init__(self) -> None:
        """Begin a page."""
        self._left = dict(GLOSSARY)

    def __call__(self, text: str) -> Markup:
        """Escape a text; words that were not explained before become terms with a meaning."""
        matches = {p: match for p in self._left if (match := re.search(p, text))}
        parts, end = [], 0
        for pattern, match in sorted(matches.items(), key=lambda each: each[1].start()):
            meaning = escape(match.expand(self._left.pop(pattern)))
            term = f'<dfn tabindex="0" data-meaning="{meaning}">{escape(match[0])}</dfn>'
            parts += [escape(text[end : match.start()]), Markup(term)]
            end = match.end()
        return Markup("").join([*parts, escape(text[end:])])
