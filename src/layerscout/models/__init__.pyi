from .architecture import (
    PER_BLOCK as PER_BLOCK,
    base_of as base_of,
    freeze as freeze,
    locate_parameters as locate_parameters,
)
from .averaging import (
    can_average as can_average,
    find_linear_head as find_linear_head,
    make_averaging_classifier as make_averaging_classifier,
    norm_means as norm_means,
)
from .checkpoints import (
    load_config as load_config,
)
from .classifiers import (
    build as build,
    find_head_token as find_head_token,
    keep_thresholds as keep_thresholds,
    make_classifier as make_classifier,
    match_columns as match_columns,
    note_classes as note_classes,
    read_names as read_names,
    read_thresholds as read_thresholds,
    unshare_weights as unshare_weights,
)
from .devices import (
    Computed as Computed,
    Precision as Precision,
    eval_mode as eval_mode,
    resolve_device as resolve_device,
    run_in_halves as run_in_halves,
    use_seed as use_seed,
    view_bytes as view_bytes,
    widen as widen,
)
from .edits import (
    apply_edits as apply_edits,
    arrange_blocks as arrange_blocks,
    edit as edit,
    list_reinitialized as list_reinitialized,
    untie_blocks as untie_blocks,
)
from .encoder import (
    Encoder as Encoder,
    describe_model as describe_model,
    hash_base as hash_base,
    holds_exactly as holds_exactly,
)
from .exports import (
    export as export,
    round_weights as round_weights,
    truncate as truncate,
)
from .families import (
    FAMILIES as FAMILIES,
    Family as Family,
    check_family as check_family,
    read_token as read_token,
)
from .formats import (
    SENTENCES as SENTENCES,
    Saved as Saved,
    add_formats as add_formats,
    check_formats as check_formats,
)
from .forward import park_embeddings as park_embeddings, resume_at as resume_at
from .gradients import Gradients as Gradients
from .heads import (
    Head as Head,
    choose_head_pooling as choose_head_pooling,
    choose_solved_pooling as choose_solved_pooling,
    find_output as find_output,
    make_family_head as make_family_head,
    scale_logits as scale_logits,
    take_family_head as take_family_head,
)
from .hub import (
    check_push as check_push,
    is_apart as is_apart,
    list_checkpoint_files as list_checkpoint_files,
    push as push,
)
from .joined_words import (
    Words as Words,
)
from .methods import (
    TrainableModel as TrainableModel,
    check_method as check_method,
    describe_step as describe_step,
    lora_config as lora_config,
    make_trainable as make_trainable,
    unload as unload,
)
from .pooling import take_tokens as take_tokens
from .saved_adapters import (
    load_tuned as load_tuned,
    save_peft as save_peft,
    save_trained as save_trained,
)
from .sentence_classifiers import export_mean as export_mean
from .shapes import (
    model_class as model_class,
    model_shape as model_shape,
)
from .tokens import (
    Cut as Cut,
    Tokens as Tokens,
    name_empty_text as name_empty_text,
    overlap_windows as overlap_windows,
    warn_of_cut_inputs as warn_of_cut_inputs,
    warn_of_dropped_words as warn_of_dropped_words,
    warn_of_tokens as warn_of_tokens,
    warn_of_unknown_tokens as warn_of_unknown_tokens,
)
from .tuned_classifiers import load_tuned_classifier as load_tuned_classifier
from .versions import find_oldest as find_oldest
