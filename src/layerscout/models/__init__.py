"""Pretrained models: families, encoders, surgery, adapters, heads, gradients, exports."""

from layerscout.models.adapters import Equipped, check_method, equip, merged, unload
from layerscout.models.checkpoints import (
    checkpoint_files,
    load_config,
    model_class,
    model_shape,
    sized_config,
)
from layerscout.models.editing import drawn_anew, edit, edited, fitted
from layerscout.models.encoder import (
    Encoder,
    Pooling,
    Precision,
    Tokens,
    checked_device,
    eval_mode,
    resuming,
)
from layerscout.models.exports import export, truncate
from layerscout.models.gradients import BlockScores, fisher, gradient_scores
from layerscout.models.heads import Head, family_head, tuned_classifier
from layerscout.models.saved_adapters import load, save_peft, save_trained
from layerscout.models.surgery import (
    base_of,
    build,
    classifier,
    freeze,
    lora_config,
    own,
    reads_first_token,
    seeded,
    untied,
)
