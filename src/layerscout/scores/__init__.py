"""Scores of layers on plain arrays, and the table that names them."""

from layerscout.scores.arrays import (
    LARGEST,
    cca,
    codelength,
    entropy,
    h_score,
    head_quality,
    knn,
    loes,
    logme,
    mutual_information,
    nc1,
    numerical_rank,
    ridge,
    variability_ratio,
    variability_ratio_debiased,
)
from layerscout.scores.cka import small_sample_warning
from layerscout.scores.clusters import find_clusters
from layerscout.scores.decisions import (
    Decision,
    Gap,
    decide_best,
    decide_within,
    find_separable,
    measure_gaps,
)
from layerscout.scores.diagnostics import against_probe, agreement, rank_movement, ranks, smoothness
from layerscout.scores.estimates import Estimate
from layerscout.scores.family_probes import train_family_probes
from layerscout.scores.grouping import deal_groups, find_rare
from layerscout.scores.head_quality import Quality
from layerscout.scores.indicators import average_labels, find_rare_labels
from layerscout.scores.linear_probes import train_linear_probes
from layerscout.scores.moments import Moments, class_weights
from layerscout.scores.probes import Metric, Probes, judge_by, judge_majority, majority
from layerscout.scores.score import Score
from layerscout.scores.similarity_maps import SimilarityMap, cka_map
from layerscout.scores.state import State
from layerscout.scores.table import DEFAULT, SCORES, Source, applicable, usual_scores
from layerscout.scores.variability import Debiased
