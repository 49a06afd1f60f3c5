"""From the plain values that the verbs write to words, tables, charts and HTML."""

from layerscout.pages.axes import (
    BEST,
    CURVE,
    MUTED,
    THIRD,
    lay_out_values,
    layer_rows,
    place_side_by_side,
    tight_scale,
)
from layerscout.pages.by_name import choose_split, tabulate_by_name
from layerscout.pages.commands import train_longer, write_command, write_report_command
from layerscout.pages.comparison import count_compared, describe_clusters
from layerscout.pages.content import Section, Table
from layerscout.pages.curves import draw_truncation
from layerscout.pages.diagnostics import tabulate_stability
from layerscout.pages.evaluation import (
    describe_evaluation,
    tabulate_edits,
    tabulate_truncation,
)
from layerscout.pages.formats import format_number
from layerscout.pages.heat_maps import (
    choose_estimate,
    draw_similarity,
    draw_skips,
    name_estimate,
    name_maps,
)
from layerscout.pages.html import build_sections, render_page, render_result
from layerscout.pages.markup import write_latex, write_markdown
from layerscout.pages.naming import (
    compare_with_majority,
    count_examples,
    count_labels,
    count_read,
    describe_interval,
    describe_reached,
    describe_speed,
    list_chosen,
    name_examples,
    name_labels,
    name_majority,
    name_measure,
)
from layerscout.pages.next_steps import describe_tuning, suggest_step
from layerscout.pages.plan import (
    describe_untying,
    describe_work,
    explain_plans,
    tabulate_plans,
    write_next_command,
)
from layerscout.pages.plotting import check_plot, plot, save_chart
from layerscout.pages.scan_tables import tabulate_scores_briefly
from layerscout.pages.scores import (
    choose_leading,
    describe_tie,
    find_tied,
    get_details,
    list_scores,
    title_score,
)
from layerscout.pages.side_by_side import build_side_by_side, describe_side_by_side
from layerscout.pages.tuned import (
    describe_training,
    tabulate_epochs,
    tabulate_runs,
)
from layerscout.pages.wording import (
    describe_advice,
    describe_refusals,
    describe_scan,
    write_advice,
)
