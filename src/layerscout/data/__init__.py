"""Labelled tasks: reading tables, choosing columns, targets, splits, samples and metrics."""

from layerscout.data.columns import KNOWN, Inputs, choose_inputs, render
from layerscout.data.metrics import METRICS, evaluate, evaluate_all, pearson_spearman
from layerscout.data.sampling import Split, batch_by_length, sample, shuffle_batches
from layerscout.data.shards import Shards
from layerscout.data.tables import Table, join_names
from layerscout.data.targets import (
    HELD_OUT,
    Targets,
    check_metric,
    describe_kind,
    draw_examples,
    ensure_validation,
    expand_choices,
    make_targets,
    require_validation,
    tabulate_predictions,
)
from layerscout.data.task import Kind, Task, count_classes
