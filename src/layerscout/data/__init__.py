"""Labelled tasks: reading tables, choosing columns, targets, splits, samples and metrics."""

from layerscout.data.columns import KNOWN, Inputs, choose_inputs, render
from layerscout.data.metrics import METRICS, evaluate, evaluate_all, pearson_spearman
from layerscout.data.sampling import Split, length_batches, sample, shuffled_batches
from layerscout.data.shards import Shards
from layerscout.data.tables import Table, listed
from layerscout.data.targets import (
    HELD_OUT,
    Answers,
    answers,
    check_metric,
    drawn,
    held_out,
    plain,
    predicted,
    rows_of,
    validated,
)
from layerscout.data.task import Kind, Task, counted_classes
