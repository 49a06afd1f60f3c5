"""Words of the field, explained where they first stand on a page or in a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable

from markupsafe import Markup, escape

# What finds a word in a text, and what it means; a plan is explained with its own numbers.
GLOSSARY: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (r"\bstates?\b", lambda _: "the output of a block; state 0 is the output of the embeddings"),
    (r"\btrunk\b", lambda _: "the frozen blocks below the lowest tuned one, which run only once"),
    (r"ν", lambda _: "spread within the classes over the distance between them; lower is better"),
    (r"ℓ\*", lambda _: "the state with the best score"),
    (
        r"\((\d+), (\d+), (\d+)\)",
        lambda plan: f"blocks {plan[1]} to {plan[2]} are tuned, and the head reads state {plan[3]}",
    ),
    (r"\bFLOPs\b", lambda _: "floating-point operations, counted, not timed"),
)


class Explainer:
    """Explains each word of the glossary once: where it first stands in the texts of a page."""

    def __init__(self) -> None:
        """Begin a page."""
        self._left = list(GLOSSARY)

    def __call__(self, text: str) -> Markup:
        """Escape a text; words that were not explained before become terms with a meaning."""
        found = []
        for row in list(self._left):
            pattern, explain = row
            if match := re.search(pattern, text):
                found.append((match, explain(match)))
                self._left.remove(row)
        parts, end = [], 0
        for match, meaning in sorted(found, key=lambda each: each[0].start()):
            term = f'<dfn tabindex="0" data-meaning="{escape(meaning)}">{escape(match[0])}</dfn>'
            parts += [escape(text[end : match.start()]), Markup(term)]
            end = match.end()
        return Markup("").join([*parts, escape(text[end:])])
