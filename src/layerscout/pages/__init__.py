"""From the plain values that the verbs write to words, charts and HTML."""

from layerscout.pages.charts import (
    BEST,
    CURVE,
    MUTED,
    THIRD,
    check_plot,
    for_page,
    plot,
    save_chart,
    side_by_side,
    similarity_panels,
    skips,
    truncation,
)
from layerscout.pages.page import (
    Section,
    Table,
    command,
    comparison_page,
    evaluation_page,
    page,
    scan_page,
    sections_of,
)
from layerscout.pages.wording import (
    best_by,
    certainty,
    deviation,
    evaluation_lines,
    examples_read,
    heading,
    leading,
    map_names,
    no_signal,
    of_kind,
    refusal,
    sparkline,
    split_lines,
    tied,
    unit,
)
