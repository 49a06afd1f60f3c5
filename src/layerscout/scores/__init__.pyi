from .arrays import (
    LARGEST as LARGEST,
    cca as cca,
    h_score as h_score,
    head_quality as head_quality,
    knn as knn,
    logme as logme,
    mutual_information as mutual_information,
    nc1 as nc1,
    numerical_rank as numerical_rank,
    ridge as ridge,
    variability_ratio as variability_ratio,
    variability_ratio_debiased as variability_ratio_debiased,
)
from .calibration import (
    TRAINED as TRAINED,
    calibrate as calibrate,
    find_losses as find_losses,
    measure_calibration as measure_calibration,
)
from .cka import (
    SimilarityMap as SimilarityMap,
    cka_map as cka_map,
    find_clusters as find_clusters,
    small_sample_warning as small_sample_warning,
)
from .diagnostics import (
    against_probe as against_probe,
    agreement as agreement,
    rank_movement as rank_movement,
    ranks as ranks,
    smoothness as smoothness,
)
from .estimates import (
    Decision as Decision,
    Estimate as Estimate,
    decide_best as decide_best,
    find_separable as find_separable,
    measure_gaps as measure_gaps,
)
from .evaluation_result import EvaluationResult as EvaluationResult
from .family_probes import train_family_probes as train_family_probes
from .gradients import (
    BlockScores as BlockScores,
    SquaredGradientSums as SquaredGradientSums,
    label_vectors as label_vectors,
    root_of_sum as root_of_sum,
    score_blocks as score_blocks,
    sum_of_roots as sum_of_roots,
    sum_squares as sum_squares,
)
from .grouping import (
    average_labels as average_labels,
    count_examples as count_examples,
    deal_groups as deal_groups,
    find_rare as find_rare,
    find_rare_labels as find_rare_labels,
)
from .linear_probes import train_linear_probes as train_linear_probes
from .moments import Moments as Moments, class_weights as class_weights
from .probes import (
    Metric as Metric,
    Probes as Probes,
    judge_majority as judge_majority,
    majority as majority,
    make_judge as make_judge,
)
from .quality import Quality as Quality
from .regression import predict_linearly as predict_linearly
from .score import DEFAULT as DEFAULT, Score as Score
from .solving import (
    SHORTLIST as SHORTLIST,
    SHRINKAGES as SHRINKAGES,
    LinearHead as LinearHead,
    SolvedHead as SolvedHead,
    solve_apart as solve_apart,
    solve_head as solve_head,
    solve_path as solve_path,
    solve_regression as solve_regression,
)
from .state import State as State
from .table import (
    RETIRED as RETIRED,
    SCORES as SCORES,
    Source as Source,
    list_usual_scores as list_usual_scores,
    name_score as name_score,
    read_score_keys as read_score_keys,
)
from .threads import map_at_once as map_at_once
from .variability import Debiased as Debiased
from .words import MOST_TEXTS as MOST_TEXTS, predict_from_words as predict_from_words
