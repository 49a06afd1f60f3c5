"""What is tuned and how, as values: plans, edits, methods, training settings, costs."""

from layerscout.plans.auto import Choice, checked_budget, choose
from layerscout.plans.costs import Cost, Work, block_flops, cost, full_cost, trunk_flops
from layerscout.plans.edits import (
    Arrangement,
    Edit,
    EditSpec,
    Permute,
    Preserve,
    Reinitialize,
    Skip,
    Truncate,
    WeightInit,
    arrange,
    format_edits,
    make_edits,
    split_edits,
)
from layerscout.plans.methods import (
    FULL,
    METHODS,
    PREFIXED,
    Adapter,
    Full,
    LoRA,
    Method,
    PrefixTuning,
    applied,
    check_family,
    check_tunes_blocks,
    check_untied,
    described,
    make_method,
)
from layerscout.plans.options import Option, options
from layerscout.plans.plan import (
    ModelShape,
    Parameters,
    Plan,
    check_tied,
    make_plan,
    ranges,
    weight_sets,
)
from layerscout.plans.presets import FAMILY_RATE, FAMILY_RATES, PRESETS, preset, preset_rates
from layerscout.plans.training import Classifier, Keep, Schedule, Settings, learning_rate_at
