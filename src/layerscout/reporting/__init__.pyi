from .card import (
    summarise_tuning as summarise_tuning,
    write_card as write_card,
)
from .charts import (
    BEST as BEST,
    CURVE as CURVE,
    MUTED as MUTED,
    check_plot as check_plot,
    draw_intervals as draw_intervals,
    encode_colour as encode_colour,
    encode_values as encode_values,
    layer_rows as layer_rows,
    list_ends as list_ends,
    place_side_by_side as place_side_by_side,
    save_chart as save_chart,
    tight_scale as tight_scale,
)
from .comparison import (
    count_compared as count_compared,
    describe_clusters as describe_clusters,
)
from .content import (
    Section as Section,
    Table as Table,
    write_latex as write_latex,
    write_markdown as write_markdown,
)
from .display import Displayed as Displayed
from .evaluation import (
    describe_evaluation as describe_evaluation,
    describe_training as describe_training,
    offer_halves as offer_halves,
    offer_macro_f1 as offer_macro_f1,
    tabulate_by_name as tabulate_by_name,
    tabulate_confusion as tabulate_confusion,
    tabulate_edits as tabulate_edits,
    tabulate_epochs as tabulate_epochs,
    tabulate_runs as tabulate_runs,
    tabulate_solved as tabulate_solved,
    tabulate_truncation as tabulate_truncation,
)
from .figures import (
    draw_similarity as draw_similarity,
    draw_skips as draw_skips,
    draw_truncation as draw_truncation,
    plot as plot,
)
from .html import (
    render_page as render_page,
    render_result as render_result,
    write_result as write_result,
)
from .next_steps import (
    describe_tuning as describe_tuning,
    list_uses as list_uses,
    suggest_step as suggest_step,
    write_advice as write_advice,
    write_command as write_command,
    write_next_command as write_next_command,
    write_report_command as write_report_command,
)
from .scan import (
    describe_training_cost as describe_training_cost,
    describe_untying as describe_untying,
    explain_plans as explain_plans,
    tabulate_checkpoints as tabulate_checkpoints,
    tabulate_plans as tabulate_plans,
    tabulate_scores_briefly as tabulate_scores_briefly,
)
from .scores import (
    TIED as TIED,
    choose_leading as choose_leading,
    describe_advice as describe_advice,
    describe_scan as describe_scan,
    describe_tie as describe_tie,
    describe_undefined as describe_undefined,
    find_tied as find_tied,
    get_details as get_details,
    title_score as title_score,
)
from .sections import build_sections as build_sections
from .side_by_side import (
    build_side_by_side as build_side_by_side,
    describe_side_by_side as describe_side_by_side,
)
from .words import (
    compare_with_free as compare_with_free,
    count_examples as count_examples,
    count_labels as count_labels,
    count_read as count_read,
    describe_calibration as describe_calibration,
    describe_free as describe_free,
    describe_more as describe_more,
    describe_reached as describe_reached,
    describe_speed as describe_speed,
    find_stage as find_stage,
    format_number as format_number,
    list_chosen as list_chosen,
    name_apart as name_apart,
    name_labels as name_labels,
    name_measure as name_measure,
)
