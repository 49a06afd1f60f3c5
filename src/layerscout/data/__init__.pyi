from .batches import (
    balance_batches as balance_batches,
    batch_by_length as batch_by_length,
    shuffle_batches as shuffle_batches,
    shuffle_plainly as shuffle_plainly,
)
from .columns import (
    Inputs as Inputs,
    choose_inputs as choose_inputs,
    render as render,
)
from .exchanges import find_exchange as find_exchange, warn_of_exchange as warn_of_exchange
from .files import write_parquet as write_parquet
from .intervals import (
    SIGNED as SIGNED,
    find_difference as find_difference,
    find_interval as find_interval,
    half_width as half_width,
    standard_error as standard_error,
)
from .known_tasks import (
    KNOWN as KNOWN,
    Kind as Kind,
    benchmark as benchmark,
)
from .labels import (
    are_ids as are_ids,
    pair_classes as pair_classes,
    read_classes as read_classes,
)
from .metrics import (
    METRICS as METRICS,
    METRICS_OF as METRICS_OF,
    evaluate as evaluate,
    evaluate_all as evaluate_all,
    evaluate_by_name as evaluate_by_name,
    evaluate_without as evaluate_without,
    list_metrics as list_metrics,
    name_metric as name_metric,
    pearson_spearman as pearson_spearman,
    tabulate_confusion as tabulate_confusion,
)
from .pairing import (
    find_row_interval as find_row_interval,
    pair_predictions as pair_predictions,
)
from .predictions import (
    find_certainty as find_certainty,
    pick_choices as pick_choices,
    predict_labels as predict_labels,
    settle_thresholds as settle_thresholds,
    tune_thresholds as tune_thresholds,
    warn_of_answers as warn_of_answers,
)
from .rare import REPEATED as REPEATED
from .sampling import (
    Split as Split,
    concatenate_ranges as concatenate_ranges,
    deal_labels as deal_labels,
    draw_words as draw_words,
    number_texts as number_texts,
    sample as sample,
    stratify as stratify,
)
from .sources import (
    is_local as is_local,
)
from .tables import (
    Table as Table,
    join_names as join_names,
    name_some as name_some,
)
from .targets import (
    HELD_OUT as HELD_OUT,
    Targets as Targets,
    check_choices as check_choices,
    check_metric as check_metric,
    describe_kind as describe_kind,
    describe_task as describe_task,
    draw_examples as draw_examples,
    ensure_validation as ensure_validation,
    expand_choices as expand_choices,
    make_targets as make_targets,
    require_validation as require_validation,
    smooth_shares as smooth_shares,
    tabulate_predictions as tabulate_predictions,
)
from .task import (
    ReadingOptions as ReadingOptions,
    Task as Task,
    count_repeated as count_repeated,
    reload_task as reload_task,
)
from .texts import (
    TextRows as TextRows,
    Texts as Texts,
    choose_file as choose_file,
    open_texts as open_texts,
)
from .words import (
    Tags as Tags,
    find_spans as find_spans,
    label_pieces as label_pieces,
)
from .writing import (
    WRITTEN as WRITTEN,
    join_schemas as join_schemas,
    writing_rows as writing_rows,
)
