"""Words of the field, explained where they first stand on a page."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

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
        found = {p: match for p in self._left if (match := re.search(p, text))}
        parts, end = [], 0
        for pattern, match in sorted(found.items(), key=lambda each: each[1].start()):
            meaning = escape(match.expand(self._left.pop(pattern)))
            term = f'<dfn tabindex="0" data-meaning="{meaning}">{escape(match[0])}</dfn>'
            parts += [escape(text[end : match.start()]), Markup(term)]
            end = match.end()
        return Markup("").join([*parts, escape(text[end:])])
