"""Labelled tasks: reading tables, choosing columns, targets, splits, samples and metrics."""

from layerscout.data.batches import batch_by_length, shuffle_batches, shuffle_plainly
from layerscout.data.columns import Inputs, choose_inputs, render
from layerscout.data.intervals import (
    SIGNED,
    find_difference,
    find_interval,
    half_width,
    standard_error,
)
from layerscout.data.known_tasks import KNOWN, Kind, benchmark
from layerscout.data.labels import count_classes, read_classes
from layerscout.data.metrics import (
    METRICS,
    METRICS_OF,
    evaluate,
    evaluate_all,
    evaluate_by_name,
    evaluate_groups,
    evaluate_without,
    list_metrics,
    name_metric,
    pearson_spearman,
    tabulate_confusion,
)
from layerscout.data.pairing import find_row_interval, pair_predictions
from layerscout.data.predictions import (
    find_certainty,
    pick_choices,
    predict_labels,
    settle_thresholds,
    tune_thresholds,
    warn_of_one_answer,
)
from layerscout.data.sampling import (
    Split,
    concatenate_ranges,
    deal_labels,
    draw_words,
    sample,
    stratify,
)
from layerscout.data.shards import Shards
from layerscout.data.tables import Table, join_names
from layerscout.data.targets import (
    HELD_OUT,
    Targets,
    check_choices,
    check_metric,
    describe_kind,
    draw_examples,
    ensure_validation,
    expand_choices,
    make_targets,
    require_validation,
    tabulate_predictions,
)
from layerscout.data.task import REPEATED, Task, count_repeated, reload_task
from layerscout.data.words import Tags
