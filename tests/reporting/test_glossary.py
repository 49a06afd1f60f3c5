"""Words explained on pages."""

import re
from functools import partial
from pathlib import Path

from layerscout.reporting.html import GLOSSARY, explain_terms

DOCS = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"


def test_a_word_is_explained_where_it_first_stands_and_no_text_is_lost():
    explain = partial(explain_terms, glossary=dict(GLOSSARY))
    first = explain("Plan (3, 6, 8) & <b>state</b> 2, by ν; state 3.")
    assert re.sub(r"<dfn[^>]*>|</dfn>", "", first) == (
        "Plan (3, 6, 8) &amp; &lt;b&gt;state&lt;/b&gt; 2, by ν; state 3."
    )
    assert re.findall(r"<dfn[^>]*>([^<]*)</dfn>", first) == ["(3, 6, 8)", "state", "ν"]
    assert 'data-meaning="blocks 3 to 6 are tuned, and the head reads state 8"' in first
    assert "<dfn" not in explain("Another state, (1, 2, 2) and ν.")
    assert ">trunk</dfn>" in explain("the trunk of a state")


def test_what_is_explained_stands_in_the_docs_too():
    known = DOCS.read_text(encoding="utf-8")
    for pattern in GLOSSARY:
        assert re.search(pattern, known.replace("\\*", "*").replace("(b, t, h)", "(1, 2, 2)"))
