"""How notebooks show what a verb gave: what was found, with its chart or its table."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from typing import Any

from layerscout.reporting.content import load_template


class Displayed(ABC):
    """The result of a verb, which notebooks show as what its page opens with."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Return the content of its JSON file."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return it as HTML, the first chart as SVG, and as text."""
        from layerscout.reporting.charts import place_side_by_side
        from layerscout.reporting.sections import build_sections

        title, sections = build_sections(self.as_dict())
        found = next(section for section in sections if section.title == "Found")
        shown = next((one for one in sections if one.charts or one.table), found)
        pictures, picture = {}, None
        if shown.charts:
            svg = place_side_by_side(list(shown.charts), 2).draw_svg()
            pictures = {"image/svg+xml": svg}
            picture = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
        html = load_template("display.html").render(
            title=title,
            paragraphs=found.paragraphs,
            picture=picture,
            description=" ".join(chart.description for chart in shown.charts),
            table=shown.table,
        )
        return {"text/plain": repr(self), "text/html": html, **pictures}
