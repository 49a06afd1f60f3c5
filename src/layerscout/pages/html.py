"""The page: sections as one HTML file that loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

import jinja2
import vl_convert

from layerscout.pages.axes import fit_page
from layerscout.pages.comparison import build_comparison
from layerscout.pages.content import Section
from layerscout.pages.evaluation import build_evaluation
from layerscout.pages.glossary import Explainer
from layerscout.pages.next_steps import suggest_step
from layerscout.pages.scan import build_scan
from layerscout.pages.tuned import build_tuned

# By the "verb" of a JSON file; a scan has commands of its own.
BUILDERS = {
    "compare": build_comparison,
    "evaluate": build_evaluation,
    "tune": build_tuned,
}


def build_sections(content: Mapping[str, Any], folder: str = ".") -> tuple[str, list[Section]]:
    """Give the title and the sections of what a verb wrote as JSON.

    Args:
        content: of the file.
        folder: where it is, as commands name it.
    """
    if content["verb"] == "scan":
        return build_scan(content, folder)
    title, sections = BUILDERS[content["verb"]](content)
    if step := suggest_step(content, folder):
        sections[0] = replace(sections[0], commands=[step])
    return title, sections


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
    lines = (resources.files("layerscout.pages") / "page.js").read_text(encoding="utf-8")
    return str(vl_convert.javascript_bundle(lines))


@cache
def _load_template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("layerscout.pages", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["fit_page"] = fit_page
    # Undefined values are null in our files; a NaN would not be JSON at all.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    return environment.get_template("page.html")
