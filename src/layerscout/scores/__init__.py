"""Scores of layers on plain arrays, and the table that names them."""

from layerscout.scores.cka import SimilarityMap, cka_change, cka_map, clusters, small_sample_warning
from layerscout.scores.diagnostics import against_probe, agreement, rank_movement, ranks, smoothness
from layerscout.scores.moments import Moments, class_weights
from layerscout.scores.probes import Metric, family_probes, linear_probes, majority
from layerscout.scores.spectra import block_snr
from layerscout.scores.table import (
    DEFAULT,
    LARGEST,
    SCORES,
    Score,
    Source,
    State,
    applicable,
    cca,
    h_score,
    knn,
    logme,
    mutual_information,
    nc1,
    numerical_rank,
    ridge,
    variability_ratio,
    variability_ratio_debiased,
)
from layerscout.scores.variability import (
    Debiased,
    Decision,
    decision,
    interval,
    separable,
    stratified_groups,
)
