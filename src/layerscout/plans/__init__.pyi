import layerscout.plans.typed_options as typed

from .auto import (
    HeadSuggestion as HeadSuggestion,
    ListedStrategy as ListedStrategy,
    choose as choose,
    choose_head_state as choose_head_state,
    list_strategies as list_strategies,
    suggest_default_head as suggest_default_head,
    suggest_upper_head as suggest_upper_head,
    usual_budget as usual_budget,
)
from .costs import (
    Cost as Cost,
    Step as Step,
    Work as Work,
    block_flops as block_flops,
    block_weights as block_weights,
    cost as cost,
    full_cost as full_cost,
    peak_memory as peak_memory,
    trunk_flops as trunk_flops,
)
from .edits import (
    Arrangement as Arrangement,
    Edit as Edit,
    EditSpec as EditSpec,
    arrange as arrange,
    format_edits as format_edits,
    make_edits as make_edits,
)
from .methods import (
    FULL as FULL,
    METHODS as METHODS,
    Adapter as Adapter,
    Full as Full,
    LoRA as LoRA,
    Method as Method,
    PrefixTuning as PrefixTuning,
    apply_method as apply_method,
    check_peft as check_peft,
    check_tunes_blocks as check_tunes_blocks,
    check_untied as check_untied,
    make_method as make_method,
)
from .options import (
    COUNT as COUNT,
    COUNTS as COUNTS,
    MAX_LENGTH as MAX_LENGTH,
    Declaration as Declaration,
    Options as Options,
    Pooling as Pooling,
    ReadToken as ReadToken,
    add_options as add_options,
    check_option as check_option,
    explain_options as explain_options,
    first_state as first_state,
    make_request as make_request,
    option as option,
    options_of as options_of,
    resolve_request as resolve_request,
    take_options as take_options,
    types_of as types_of,
    usual_pooling as usual_pooling,
)
from .papers import (
    FAMILY_RATE as FAMILY_RATE,
    FAMILY_RATES as FAMILY_RATES,
    PRESETS as PRESETS,
    Classifier as Classifier,
    WeightInit as WeightInit,
    default_head_rate as default_head_rate,
    default_learning_rate as default_learning_rate,
    preset as preset,
    preset_rates as preset_rates,
    stage_rate as stage_rate,
    usual_rates as usual_rates,
)
from .plan import (
    Choice as Choice,
    ModelShape as ModelShape,
    Parameters as Parameters,
    Plan as Plan,
    check_embeddings as check_embeddings,
    check_tied as check_tied,
    find_runs as find_runs,
    ranges as ranges,
    weight_sets as weight_sets,
)
from .reading import (
    CompareRequest as CompareRequest,
    EvaluateRequest as EvaluateRequest,
    PredictRequest as PredictRequest,
    ScanRequest as ScanRequest,
)
from .request import (
    TRAINING as TRAINING,
    PlanRequest as PlanRequest,
    TuneRequest as TuneRequest,
    describe_given as describe_given,
)
from .strategies import (
    BEST_HEAD as BEST_HEAD,
    STRATEGIES as STRATEGIES,
    make_plan as make_plan,
    split_embeddings as split_embeddings,
)
from .training import (
    LEAST_CONTRASTED as LEAST_CONTRASTED,
    OF_TEXTS as OF_TEXTS,
    STAGE_EXAMPLES as STAGE_EXAMPLES,
    STAGE_ROWS as STAGE_ROWS,
    Keep as Keep,
    Loss as Loss,
    Schedule as Schedule,
    Settings as Settings,
    choose_epochs as choose_epochs,
    choose_stage_loss as choose_stage_loss,
    ends_solved as ends_solved,
    learning_rate_at as learning_rate_at,
    rank_rate as rank_rate,
    share_stages as share_stages,
)

CompareOptions = typed.CompareOptions
EvaluateOptions = typed.EvaluateOptions
PlanOptions = typed.PlanOptions
PredictOptions = typed.PredictOptions
ScanOptions = typed.ScanOptions
TuneOptions = typed.TuneOptions
