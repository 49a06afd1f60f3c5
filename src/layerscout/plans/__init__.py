"""What is tuned and how, as values: plans, edits, methods, training settings, costs."""

from typing import TYPE_CHECKING

from layerscout.plans.auto import (
    Choice,
    HeadSuggestion,
    check_budget,
    choose,
    choose_head_state,
    pays_for_scan,
    suggest_default_head,
)
from layerscout.plans.costs import (
    Cost,
    Step,
    Work,
    block_flops,
    block_weights,
    cost,
    full_cost,
    peak_memory,
    trunk_flops,
)
from layerscout.plans.edits import (
    Arrangement,
    Edit,
    EditSpec,
    Permute,
    Preserve,
    Reinitialize,
    Skip,
    Truncate,
    arrange,
    format_edits,
    make_edits,
    split_edits,
)
from layerscout.plans.listing import ListedStrategy, list_strategies
from layerscout.plans.methods import (
    FULL,
    METHODS,
    Adapter,
    Full,
    LoRA,
    Method,
    PrefixTuning,
    apply_method,
    check_tunes_blocks,
    check_untied,
    make_method,
)
from layerscout.plans.options import (
    Declaration,
    add_options,
    check_counts,
    check_for_whole_number,
    check_option,
    check_options,
    explain_options,
    make_request,
    option,
    options_of,
    resolve_request,
    types_of,
)
from layerscout.plans.papers import (
    FAMILY_RATE,
    FAMILY_RATES,
    PRESETS,
    Classifier,
    WeightInit,
    default_head_rate,
    default_learning_rate,
    preset,
    preset_rates,
)
from layerscout.plans.plan import (
    ModelShape,
    Parameters,
    Plan,
    check_embeddings,
    check_tied,
    ranges,
    weight_sets,
)
from layerscout.plans.request import (
    CompareRequest,
    EvaluateRequest,
    PlanRequest,
    Pooling,
    ReadToken,
    ScanRequest,
    first_state,
    usual_pooling,
)
from layerscout.plans.strategies import STRATEGIES, make_plan, split_embeddings
from layerscout.plans.training import (
    Keep,
    Schedule,
    Settings,
    TuneRequest,
    choose_epochs,
    describe_given,
    learning_rate_at,
    rank_rate,
)

if TYPE_CHECKING:
    from layerscout.plans.typed_options import (
        CompareOptions,
        EvaluateOptions,
        PlanOptions,
        ScanOptions,
        TuneOptions,
    )
