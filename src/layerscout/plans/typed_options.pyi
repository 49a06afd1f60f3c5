"""Options of the verbs, for editors; `make docs` writes them from the requests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from layerscout.plans.edits import Edit
from layerscout.plans.methods import Method
from layerscout.plans.options import Pooling
from layerscout.plans.papers import Classifier
from layerscout.plans.plan import Plan
from layerscout.plans.training import Batching, ClassWeights, Keep, Loss, Schedule

class TuneOptions(TypedDict, total=False):
    """Options of `layerscout.tune`."""

    loss: Loss | None
    """What training lowers: the loss of the head's outputs, or a supervised contrastive one, which
    brings texts of a class together; the head is then solved (contrastive)."""

    epochs: int
    """Passes over the training examples; by default 5, or with few examples as many as give 200
    steps and 40 for each class, up to 50."""

    max_steps: int | None
    """Train for this many steps, in place of epochs."""

    batch_size: int
    """Examples per batch."""

    accumulation: int | None
    """Number of batches whose gradients are accumulated in each step, 1 by default."""

    batching: Batching | None
    """Put texts of similar length into a batch (length, the default), or shuffle them plainly
    (shuffled)."""

    warmup: float
    """Warmup steps; below 1, their share of all steps."""

    schedule: Schedule
    """After the warmup, let the learning rate fall to 0 linearly, or keep it constant."""

    head_learning_rate: float | None
    """Peak learning rate of the head if blocks are tuned too; by default that of the blocks, or a
    higher one for several labels per text or a label per word."""

    weight_decay: float
    """Weight decay of AdamW, on matrices only."""

    class_weights: ClassWeights | None
    """Weight the loss of each class (or tag) by how rare it is in training (balanced), so that all
    classes count alike."""

    max_grad_norm: float | None
    """Clip the norm of the gradient at this value."""

    patience: int | None
    """Stop a run after this many epochs without improvement."""

    keep: Keep
    """Keep the model of the epoch with the best metric, that of the epoch with the lowest
    validation loss, or the last one."""

    metric: str
    """Metric that decides which epoch, rate and plan is best; by default the task's own."""

    threshold: float | Literal["tuned"] | None
    """For several labels per text, the probability above which a label is assigned, 0.5 by default;
    tuned finds one for each label on the validation examples."""

    against: Plan | str | Path | None
    """Also tune this plan, such as full, in the same way and compare the two."""

    score: str | None
    """Score that ranks states or blocks; by default the scan's."""

    budget: float | None
    """Share of the FLOPs of full fine-tuning that auto may use."""

    method: Method | str | None
    """Tune all weights of the blocks, or a few new ones: full, adapter, lora or prefix-tuning."""

    method_options: Mapping[str, Any] | None
    """Options of the method, by name."""

    time: float | str | None
    """How long all may take, such as 90s, 10m or 2h: a training that would take longer is planned
    with fewer steps, and the free head is kept where none fits."""

    keep_adapter: bool
    """Save LoRA as a peft adapter instead of merging it."""

    classifier: Classifier | None
    """What reads the last state: the family's own head, or one linear layer on the mean of the
    tokens (mean-linear)."""

    preset: str | None
    """Train as a paper did: xie2022, phang2021, tamkin2020 or lodha2023; options that are given
    take precedence."""

    as_released: bool
    """Follow the published code where it differs from the paper; for presets and re-initialised
    blocks."""

    learning_rate: float | Sequence[float] | None
    """One or several peak learning rates; by default one that suits the plan."""

    seed: int | Sequence[int]
    """One or several random seeds; each is a run."""

    examples: int | Literal["all"]
    """Number of training examples to use, drawn in proportion to the classes, or all."""

    max_length: int
    """Maximum number of tokens per input."""

    save_dtype: Literal["float32", "bfloat16", "float16"] | None
    """Data type of the weights of the saved model."""

    trunk_dropout: bool
    """Run frozen blocks at every step, with dropout, as the papers did."""

    fresh_head: bool
    """Re-initialise the whole head, including parts that the checkpoint has weights for."""

    head_start: Literal["solved", "random"] | None
    """Where training starts the output layer: solved on what it is given, or drawn at random."""

    head_end: Literal["solved", "trained"] | None
    """How training ends: with the output layer solved on what it is given then, or as trained."""

    untie: bool
    """First give every block its own copy of shared weights (ALBERT)."""

    edits: str | Edit | Sequence[Edit]
    """Edit the blocks first: reinit:9-12, preserve:1-3, permute:1, skip:3-4 or truncate:8; join
    several with +."""

    keep_layer_norm: bool
    """Keep the layer norms of re-initialised blocks."""

    reinit_rate_factor: float
    """Factor on the learning rate of re-initialised blocks."""

    cache_limit: int
    """Bytes that the cache may hold once new states are added; 0 keeps none."""

    checkpoints: Mapping[int, str | Path] | None
    """Folders by epoch, where the model is saved as it is after that epoch, such as for the
    `checkpoints` of a scan."""

    snapshots: str | Path | None
    """A folder where the state of training is saved after every epoch, until the result is saved,
    and which is locked until then; None for none."""

    resume: bool
    """Continue a training that was stopped, from its snapshots."""

    track: str | None
    """Report every epoch to "tensorboard", "mlflow", "wandb" or "trackio"."""

    logs: str | Path
    """The folder of trackers that write files."""

    output: str | Path | None
    """Where the result will be saved: refused before any training if it holds the result of another
    one."""

    overwrite: bool
    """Replace such a result, and drop `snapshots` that are not to be resumed."""

    formats: Sequence[str]
    """Formats that `add_formats` will give the saved model: refused before any training if it
    cannot have them."""

    measure: Literal["metric", "speed", "predictions", "all"]
    """What is measured of the kept model: only the "metric" that counts, which needs no further
    pass; also its "speed"; also its "predictions" and every other metric; or "all", the test split
    too."""

    since: float | None
    """What `time.perf_counter()` said when the `time` began that all may take; by default the call
    begins it."""

class ScanOptions(TypedDict, total=False):
    """Options of `layerscout.scan`."""

    scores: str | Sequence[str] | None
    """Scores to compute, separated by commas, or all; by default head_quality and the variability
    ratios, or for numbers head_quality, cca, ridge and logme."""

    examples: int | Literal["all", "auto"]
    """Number of training examples to read, all, or auto, which reads until more cannot change where
    the head belongs."""

    within: float
    """How many points better a state above the advised one may be when "auto" stops."""

    balanced: bool
    """Draw the same number of examples from every class."""

    per_class: Sequence[int] | None
    """Draw exactly these numbers of examples, in the order of the labels."""

    pooling: Pooling | None
    """Average the tokens of a text (mean), or take its last (last) or first one (cls); by default
    mean, and last for decoders. For labelled words: mean, last or first."""

    max_length: int
    """Maximum number of tokens per input."""

    seed: int
    """Random seed."""

    probe: Literal["linear", "plain", "family"]
    """Train a linear probe on the pooled state (linear; plain trains it slowly, as Tamkin et al.
    2020 did), or the family's own head on the token that it reads (Xie et al. 2022)."""

    probe_seeds: int | None
    """How many times each probe is trained, with different seeds."""

    probe_pooling: Literal["mean", "cls"] | None
    """What probes read: the average of a text's tokens (mean) or the first one (cls); by default
    the pooled state, or what the family's head reads."""

    fisher_mode: Literal["true", "empirical"]
    """Fisher information in expectation over the model's own labels (true), or with the given
    labels (empirical)."""

    as_released: bool
    """Compute Fisher information as the code published by Lodha et al. 2023 does."""

    head_seeds: int
    """Number of random heads over which gradient-based scores are averaged."""

    clusters: int | None
    """Number of clusters for mutual_information."""

class PlanOptions(TypedDict, total=False):
    """Options of `layerscout.Scan.plan`."""

    budget: float | None
    """Share of the FLOPs of full fine-tuning that auto may use."""

    score: str | None
    """Score that ranks states or blocks; by default the scan's."""

    epochs: int | None
    """Passes over the training examples; by default as many as a tuning has."""

    method: Method | str
    """Tune all weights of the blocks, or a few new ones: full, adapter, lora or prefix-tuning."""

    method_options: Mapping[str, Any] | None
    """Options of the method, by name."""

class CompareOptions(TypedDict, total=False):
    """Options of `layerscout.compare`."""

    examples: int | Literal["all"]
    """Validation examples to read (or rows of a single file): a number or all."""

    pooling: Pooling | None
    """Take the first token of a text (cls), as Phang et al. 2021 did, its last one (last), or
    average all (mean); by default cls, but last if all models are decoders and mean if some are.
    For labelled words: mean (the default), last or first."""

    max_length: int
    """Maximum number of tokens per input."""

    seed: int
    """Random seed."""

class EvaluateOptions(TypedDict, total=False):
    """Options of `layerscout.evaluate`."""

    edits: str | Sequence[str | Edit]
    """Truncate (feed every state to the head), skip (leave out every span of blocks), or one edit
    such as skip:3-4, reinit:9-12 or permute:1; may be repeated."""

    tune_heads: bool
    """Also tune the head again at every state."""

    metric: str | None
    """Metric to report first; by default that of the tuning, or else the task's own."""

    examples: int | Literal["all"] | None
    """Number of training examples for tuning heads, or all."""

    head_epochs: int
    """Epochs for tuning heads; the best one is used."""

    head_batch_size: int
    """Batch size for tuning heads."""

    head_learning_rate: float | Sequence[float]
    """One or several peak learning rates for heads; the best one is used."""

    max_length: int
    """Maximum number of tokens per input."""

    seed: int
    """Random seed."""

class PredictOptions(TypedDict, total=False):
    """Options of `layerscout.predict`."""

    text: str | None
    """Column of texts, or of words."""

    text_pair: str | None
    """Column of second texts."""

    task: str | None
    """Known task, such as copa, whose columns are used."""

    drop_missing: bool
    """Leave out rows without a text."""

    sep: str | None
    """Separator of the fields in a CSV or TSV file: a character, or tab; by default it is detected
    from the first line."""

    encoding: str | None
    """Encoding of text files, such as cp1252 or utf-16; by default it is detected."""

    top_k: int | None
    """Write the most probable classes, so many of them, with their probabilities, in place of a
    column of probabilities for every class."""

    threshold: float | None
    """Probability from which on a text has a label, where it may have several; by default what the
    model was saved with, or else 0.5."""

    max_length: int | None
    """Maximum number of tokens per input."""
