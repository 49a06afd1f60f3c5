"""The page: sections as one HTML file that loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

import vl_convert
from markupsafe import Markup, escape

from layerscout.errors import LayerscoutError
from layerscout.files import format_json, make_output_folder, write_files
from layerscout.reporting.charts import fit_page
from layerscout.reporting.content import Section, load_template
from layerscout.reporting.sections import build_sections
from layerscout.states import cache_folder


def render_result(content: Mapping[str, Any], folder: str = ".") -> str:
    """Render what a verb wrote as JSON as one HTML page; see `build_sections`."""
    return render_page(*build_sections(content, folder), content)


def write_result(content: Mapping[str, Any], folder: str | Path) -> None:
    """Write what a verb gave into a folder, which is made if needed: as JSON, and as a page.

    Raises:
        InputError: if a file cannot be written.
    """
    path = make_output_folder(Path(folder).expanduser())
    files = {"json": format_json(content), "html": render_result(content, str(path))}
    write_files({path / f"{content['verb']}.{kind}": text for kind, text in files.items()})


def render_page(title: str, sections: Sequence[Section], data: Mapping[str, Any]) -> str:
    """Render one HTML page from `sections`; it loads nothing and carries `data` whole, as JSON.

    Sections that have nothing but a title are left out. Only the one script whose hash the page
    states may run, whatever the texts contain.
    """
    template, script = _load_template()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    shown = []
    for one in sections:
        texts = (one.heading, one.paragraphs, one.commands, one.facts, one.code)
        if any((*texts, one.charts, one.table)):
            shown.append(one)
    page: str = template.render(
        title=title,
        sections=shown,
        data=data,
        explain=partial(explain_terms, glossary=dict(GLOSSARY)),
        script=script,
        script_hash=f"sha256-{digest}",
    )
    return page


@cache
def _load_template() -> tuple[Any, str]:
    """Return the template and its one script: the chart libraries and the lines that draw."""
    template = load_template("page.html", fit_page=fit_page)
    # Undefined values are null in our files; a NaN would not be JSON at all.
    template.environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    lines = (resources.files("layerscout.reporting") / "page.js").read_text(encoding="utf-8")
    return template, _bundle(lines)


def _bundle(lines: str) -> str:
    """Put the chart libraries and these lines into one script, which takes seconds; it is kept."""
    key = hashlib.sha256(f"{version('vl-convert-python')}\n{lines}".encode()).hexdigest()
    path = cache_folder() / "page" / f"{key}.js"
    with suppress(OSError, ValueError):
        return path.read_text(encoding="utf-8")
    script: str = vl_convert.javascript_bundle(lines)
    with suppress(OSError, LayerscoutError):  # a cache may be read-only
        path.parent.mkdir(parents=True, exist_ok=True)
        write_files({path: script})
    return script


# What finds a word in a text, and what it means; a plan is explained with its own numbers.
GLOSSARY = {
    r"\bstates?\b": "the output of a block; state 0 is the output of the embeddings",
    r"\btrunk\b": "the frozen blocks below the lowest tuned one, which run only once",
    r"ν": "spread within the classes over the distance between them; lower is better",
    r"ℓ\*": "the state with the best score",
    r"\((\d+), (\d+), (\d+)\)": r"blocks \1 to \2 are tuned, and the head reads state \3",
    r"\bFLOPs\b": "floating-point operations, counted, not timed",
}


def explain_terms(text: str, glossary: dict[str, str]) -> Markup:
    """Escape a text; the words of a glossary that stand in it become terms with a meaning.

    They leave the glossary, so that each is explained once on a page, where it first stands.
    """
    matches = {p: match for p in glossary if (match := re.search(p, text))}
    parts, end = [], 0
    for pattern, match in sorted(matches.items(), key=lambda each: each[1].start()):
        meaning = escape(match.expand(glossary.pop(pattern)))
        term = f'<dfn tabindex="0" data-meaning="{meaning}">{escape(match[0])}</dfn>'
        parts += [escape(text[end : match.start()]), Markup(term)]
        end = match.end()
    return Markup("").join([*parts, escape(text[end:])])
