"""Pretrained models: families, encoders, surgery, adapters, heads, gradients, exports."""

from layerscout.models.architecture import (
    PER_BLOCK,
    base_of,
    make_config,
    model_class,
    model_shape,
)
from layerscout.models.block_scores import BlockScores
from layerscout.models.checkpoints import load_config
from layerscout.models.classifiers import build, find_read_token, make_classifier, unshare_weights
from layerscout.models.devices import Computed, Precision, resolve_device, use_seed, widen
from layerscout.models.edits import apply_edits, arrange_blocks, edit, list_reinitialized
from layerscout.models.encoder import Encoder, holds_exactly
from layerscout.models.exports import export, round_weights, truncate
from layerscout.models.formats import add_formats, check_formats
from layerscout.models.forward import eval_mode, park_embeddings, resume_at
from layerscout.models.freezing import freeze
from layerscout.models.gradients import fisher, gradient_scores
from layerscout.models.heads import (
    Head,
    choose_head_pooling,
    keep_thresholds,
    load_tuned_classifier,
    make_family_head,
    match_columns,
    read_thresholds,
)
from layerscout.models.locations import list_checkpoint_files
from layerscout.models.lora import lora_config
from layerscout.models.places import locate_parameters
from layerscout.models.publishing import check_push, push
from layerscout.models.saved_adapters import (
    holds_trained,
    load,
    load_trained,
    save_peft,
    save_trained,
)
from layerscout.models.steps import describe_step
from layerscout.models.tokens import Tokens, overlap_windows, take_tokens
from layerscout.models.training_methods import Equipped, check_method, equip, merge_lora, unload
from layerscout.models.untying import untie_blocks
