"""What the papers did, by name: their settings, their learning rates, their re-initialised blocks.

What their published code did otherwise (`as_released`) stands here alone; the rest of the package
takes it as a value.

What is not a setting of the optimizer is set apart: dropout in the frozen trunk
(`trunk_dropout`), which all of them had, and a head that is new throughout (`fresh_head`). Phang et
al. do not say which epoch counts nor how the rate falls: here the last one, and in a line. The
released code of Lodha et al. trained the embeddings in every run, which the plan says ("emb+..."),
and the pooler, which is part of the head and always trained. All shuffled plainly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from layerscout.errors import InputError
from layerscout.plans.methods import FULL, Adapter, Full, Method
from layerscout.plans.plan import Plan

Rates = tuple[float, ...]

# What reads the last state: the family's own head, or one linear layer on the mean of the tokens.
Classifier = Literal["family", "mean-linear"]


@dataclass(frozen=True)
class Preset:
    """How a paper trained.

    Attributes:
        source: the paper, and where it says so.
        settings: of `Settings`. Adam without weight decay is AdamW without.
        rates: the learning rate for every plan; None where they differ, see `preset_rates`.
        classifier: what reads the last state.
    """

    source: str
    settings: Mapping[str, Any]
    rates: Rates | None
    classifier: Classifier = "family"


_SHUFFLED = {"batching": "shuffled"}
_LODHA = {
    **_SHUFFLED,
    **{"epochs": 10, "batch_size": 16, "weight_decay": 0.01, "warmup": 0.0, "keep": "last"},
}
_TAMKIN = {**_SHUFFLED, "epochs": 3, "batch_size": 8, "warmup": 0.0, "keep": "last"}

PRESETS: Mapping[str, Preset] = {
    "xie2022": Preset(
        "Xie et al. 2022, App. B",
        {**_SHUFFLED, "epochs": 20, "batch_size": 8, "warmup": 0.06, "keep": "best"},
        None,
    ),
    "phang2021": Preset(
        "Phang et al. 2021, §2",
        {**_SHUFFLED, "max_steps": 10_000, "batch_size": 4, "warmup": 1000, "keep": "last"},
        (1e-5,),
    ),
    "tamkin2020": Preset(
        "Tamkin et al. 2020, §2 and App. C",
        {**_TAMKIN, "schedule": "constant"},
        (2e-5,),
        "mean-linear",
    ),
    "lodha2023": Preset("Lodha et al. 2023, App. A.1", _LODHA, (5e-5,)),
}

AS_RELEASED: Mapping[str, Preset] = {
    "tamkin2020": Preset(
        "the released code of Tamkin et al. 2020", {**_TAMKIN, "max_grad_norm": 1.0}, (2e-5,)
    ),
    # A step takes 32 examples; on small tasks the rate never comes near its peak.
    "lodha2023": Preset(
        "the released code of Lodha et al. 2023",
        {
            **_LODHA,
            **{"accumulation": 2, "max_grad_norm": 1.0, "warmup": 10_000, "keep": "lowest-loss"},
        },
        (5e-5,),
    ),
}

# The rates of the family's head by task, and the one of most of them. Xie et al. 2022, Table 3.
FAMILY_RATE = 1e-3
FAMILY_RATES: Mapping[str, float] = {
    "cola": 1e-3,
    "mnli": 1e-3,
    "mrpc": 1e-3,
    "qnli": 1e-3,
    "qqp": 3e-4,
    "sst2": 3e-3,
}

# Xie et al. 2022, Tables 4 and 5: the rates that were searched, for RoBERTa-large.
_FULL: Mapping[str, Rates] = {
    "full": (1e-6, 5e-6, 8e-6, 1e-5, 2e-5),
    "conventional": (8e-6, 1e-5, 2e-5, 3e-5, 5e-5),
    "below": (5e-6, 1e-5, 5e-5, 1e-4),
    "above": (1e-6, 3e-6, 1e-5, 3e-5),
}
_ADAPTER: Mapping[str, Rates] = {
    "full": (1e-5, 3e-5, 1e-4),
    "conventional": (3e-5, 1e-4, 3e-4),
    "below": (1e-5, 3e-5, 1e-4),
    "above": (1e-5, 3e-5, 1e-4),
}


def preset(
    name: str, *, task: str, examples: int, as_released: bool = False, full: bool = True
) -> Preset:
    """Return what a paper says of training on a task.

    Args:
        name: a key of `PRESETS`.
        task: its name, by which MNLI and QQP get half of the epochs in xie2022.
        examples: of the training split; up to 500 get 5 epochs in tamkin2020, by its text.
        as_released: train as the published code did, where that is known to differ.
        full: whether it is full fine-tuning, to which alone those fewer epochs apply.

    Raises:
        InputError: if its published code is requested, and not known to differ.
    """
    if as_released and name not in AS_RELEASED:
        raise InputError(
            f"the published code of {name} is not known to differ from the paper; leave out "
            f"--as-released, which applies to {' and '.join(AS_RELEASED)}"
        )
    if as_released:
        return AS_RELEASED[name]
    paper, changed = PRESETS[name], {}
    if name == "xie2022" and task in ("mnli", "qqp") and full:
        changed = {"epochs": 10}
    if name == "tamkin2020" and examples <= 500:
        changed = {"epochs": 5}
    return replace(paper, settings={**paper.settings, **changed})


def preset_rates(name: str, strategy: str, plan: Plan, method: Method, task: str) -> Rates | None:
    """Return the learning rates of a preset for a plan; None where the paper has none.

    Xie et al. 2022 have four sets for fine-tuning (Table 4) and for adapters (Table 5): for all
    blocks, for those up to ℓ*, for those above ℓ*, and for the rest. A head by itself is a probe
    (Table 3; 1e-3 for other tasks than those there).

    Args:
        name: a key of `PRESETS`.
        strategy: where the plan comes from, which tells "best-up" from "top:k".
        plan: for the encoder at hand; see `Plan.on`.
        method: how it is tuned.
        task: its name.
    """
    if name != "xie2022":
        return PRESETS[name].rates
    if not plan.tuned:
        return (FAMILY_RATES.get(task, FAMILY_RATE),)
    if not isinstance(method, Full | Adapter):
        return None
    sets = _FULL if isinstance(method, Full) else _ADAPTER
    if strategy.lower() == "full" or plan.embeddings:
        return sets["full"]
    if strategy.lower().startswith("best-up"):
        return sets["above"]
    return sets["below" if plan.tuned == tuple(range(1, plan.head + 1)) else "conventional"]


def usual_rates(
    preset: str | None, strategy: str, plan: Plan, method: Method, task: str, hidden_size: int
) -> Rates:
    """Return the learning rates of a plan that was given none: the preset's, or one that suits it.

    Args:
        preset: a key of `PRESETS`, or None; the others as for `preset_rates`.
        strategy: where the plan comes from.
        plan: for the encoder at hand.
        method: how it is tuned.
        task: its name.
        hidden_size: of the model.
    """
    rates = None if preset is None else preset_rates(preset, strategy, plan, method, task)
    return rates or (default_learning_rate(plan, hidden_size, method),)


def default_learning_rate(plan: Plan, hidden_size: int, method: Method = FULL) -> float:
    """Return a peak learning rate for a plan, a width and a method.

    At 1,024 features it is 1e-3 where the head alone is tuned, 2e-5 for full fine-tuning and 5e-5
    for other plans, 3e-4 for adapters: rates that Xie et al. 2022 (Tables 3 to 5) used or searched
    for RoBERTa-large. Those for LoRA (5e-4) and prefix-tuning (1e-2), and that narrower models want
    more, as 1 / width, are ours.
    """
    wide = method.rate
    if wide is None:
        wide = 2e-5 if plan.embeddings else 5e-5 if plan.tuned else 1e-3
    return _fit_width(wide, hidden_size)


def default_head_rate(hidden_size: int) -> float:
    """Return a peak learning rate for the head of words or of several labels above tuned blocks.

    3e-3 at 1,024 features. At the blocks' rate such a head may not learn at all where the state it
    reads varies little: mpnet-base, tuned in full on WNUT 17, left every word outside of entities.
    """
    return _fit_width(3e-3, hidden_size)


def stage_rate(plan: Plan, hidden_size: int, method: Method = FULL) -> float:
    """Return a peak learning rate for blocks below a head that is solved in the end.

    4e-4 at 384 features, as 1 / width: from a head that was solved softly it was ahead of 1.3e-4
    on MiniLM (three tasks) and level on mpnet-base. A method or a plan of the embeddings has the
    rate that it always has.
    """
    if method.rate is not None or plan.embeddings:
        return default_learning_rate(plan, hidden_size, method)
    return _fit_width(1.5e-4, hidden_size)


def _fit_width(rate: float, hidden_size: int) -> float:
    return float(f"{rate * 1024 / hidden_size:.1e}")


@dataclass(frozen=True)
class WeightInit:
    """How blocks are re-initialised.

    All weights and biases come from a normal distribution of deviation 0.02 cut at ±0.04; norms
    begin at β = 0, γ = 1. Tamkin et al. 2020, App. B.

    Attributes:
        keep_layer_norm: leave the norms as they are. App. G.
        as_released: as the published code did: cut at ±0.0008, which makes the deviation 38 times
            smaller, and biases are left as they are.
    """

    keep_layer_norm: bool = False
    as_released: bool = False

    deviation: ClassVar[float] = 0.02

    @property
    def cut(self) -> float:
        """Where the distribution is cut on both sides."""
        return 0.04 * self.deviation if self.as_released else 0.04

    @property
    def draws_biases(self) -> bool:
        """Whether biases are drawn, too."""
        return not self.as_released
