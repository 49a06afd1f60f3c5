"""Pretrained models: families, encoders, surgery, adapters, heads, gradients, exports."""

from layerscout.models.adapters import Equipped, check_method, equip, merge_lora, unload
from layerscout.models.checkpoints import (
    list_checkpoint_files,
    load_config,
    make_config,
    model_class,
    model_shape,
)
from layerscout.models.edits import apply_edits, arrange_blocks, edit, list_reinitialized
from layerscout.models.encoder import (
    Encoder,
    Pooling,
    Precision,
    Tokens,
    eval_mode,
    resolve_device,
    resume_at,
)
from layerscout.models.exports import export, truncate
from layerscout.models.gradients import BlockScores, fisher, gradient_scores
from layerscout.models.heads import Head, load_tuned_classifier, make_family_head
from layerscout.models.saved_adapters import load, save_peft, save_trained
from layerscout.models.surgery import (
    base_of,
    build,
    freeze,
    lora_config,
    make_classifier,
    reads_first_token,
    unshare_weights,
    untie_blocks,
    use_seed,
)
