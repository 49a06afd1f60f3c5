"""The head of a classifier by itself, reading states instead of texts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from layerscout.data import Kind
from layerscout.errors import InputError
from layerscout.models.architecture import ENDINGS, base_of
from layerscout.models.classifiers import (
    find_head_token,
    list_random,
    make_classifier,
    unshare_weights,
)
from layerscout.models.devices import quiet_transformers
from layerscout.models.encoder import Encoder
from layerscout.plans import Plan, Pooling


class _IdentityEncoder(nn.Module):
    """Stands for the bare model of a classifier: what it is given is the last state already."""

    def __init__(self, pooler: nn.Module | None, norm: nn.Module | None) -> None:
        super().__init__()
        self.pooler, self.norm = pooler, norm

    def forward(self, *_: Any, inputs_embeds: Float[Tensor, "b 1 d"], **__: Any) -> Any:
        # Of all kinds, since some heads pass on what a decoder's output also has.
        from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions

        state = inputs_embeds if self.norm is None else self.norm(inputs_embeds)
        pooled = None if self.pooler is None else self.pooler(state)
        return BaseModelOutputWithPoolingAndCrossAttentions(
            last_hidden_state=state, pooler_output=pooled
        )


class _First(nn.Module):
    def forward(self, state: Float[Tensor, "b T d"]) -> Float[Tensor, "b d"]:
        return state[:, 0]


class Head(nn.Module):
    """A family's classification head, pooler and final norm included, and nothing else.

    Attributes:
        model: the classifier without its encoder.
        columns: which of its outputs are given, in this order.
    """

    def __init__(
        self, model: Any, norm: str | None, columns: Sequence[int] | slice = slice(None)
    ) -> None:
        """Take the head out of a classifier; `norm` is the path of the family's final norm."""
        super().__init__()
        self.columns = columns
        bare, prefix = base_of(model)
        pooler = getattr(bare, "pooler", None)
        if isinstance(pooler, nn.Linear):  # ALBERT's, which takes the first token outside of it
            pooler = nn.Sequential(_First(), pooler, bare.pooler_activation)
        final = None if norm is None else bare.get_submodule(norm)
        setattr(model, prefix.removesuffix("."), _IdentityEncoder(pooler, final))
        self.model = model

    @property
    def output(self) -> tuple[str, nn.Linear]:
        """The layer that gives the outputs, and its name in the classifier."""
        return find_output(self.model)

    def read(self, states: Float[Tensor, "b d"]) -> Float[Tensor, "b f"]:
        """Return what the layer that gives the outputs is given."""
        seen: list[Tensor] = []
        layer = self.output[1]
        with layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])):
            self(states)
        return seen[0].reshape(len(states), -1)

    def forward(self, states: Float[Tensor, "b d"]) -> Float[Tensor, "b K"]:
        """Return the logits for the states of the token that the head reads."""
        with quiet_transformers():  # that it cannot find padding, of which there is none
            logits: Tensor = self.model(inputs_embeds=states[:, None]).logits
        return logits.reshape(len(states), -1)[:, self.columns]  # one token each, if of tokens


def choose_head_pooling(encoder: Encoder, kind: Kind = "classification") -> Pooling:
    """Choose the pooling that gives the state which the family's head reads.

    Raises:
        InputError: if the head reads all tokens, or the last one and that is not an ordinary one.
    """
    if kind == "token_classification":
        return "first"
    reads = find_head_token(encoder.model)
    if reads == "first":
        return "cls"
    tokens, reason = encoder.tokenize(["one text"]), "all tokens"
    if reads == "last":
        if encoder.find_head_tokens(tokens, reads) == tokens.find_last(np.zeros(1, dtype=np.int64)):
            return "last"
        reason = "a token that its tokenizer adds, where states are pooled from the text's own"
    raise InputError(
        f"the head of {encoder.name} reads {reason}, so it cannot be trained on the state of a "
        "single one; use a linear probe (--probe linear), or leave out --tune-heads and --original"
    )


def choose_solved_pooling(encoder: Encoder, kind: Kind) -> Pooling | None:
    """Choose the pooling that gives what the family's head reads; None if it reads more than that.

    It is as `choose_head_pooling`, or the mean that the configuration says (ModernBERT, EuroBERT).
    """
    mean = getattr(encoder.model.config, "classifier_pooling", None) == "mean"
    if mean and kind not in ("token_classification", "multiple_choice"):
        return "mean-normed"
    with suppress(InputError):
        return choose_head_pooling(encoder, kind)
    return None


def make_family_head(
    encoder: Encoder, labels: Sequence[str], seed: int, kind: Kind = "classification"
) -> Head:
    """Make the head that the family classifies with, before it has learned any task.

    It is as the library loads it, with the pretrained parts that some checkpoints bring. That of a
    tuned checkpoint has learned a task already, the same for every seed, and is drawn again.

    Args:
        encoder: brings the parts that its checkpoint has; it is not changed, and nothing is shared.
        labels: class names by id; a single one makes a head for numbers.
        seed: draws the random part.
        kind: of the task.

    Raises:
        InputError: as `choose_head_pooling`.
    """
    choose_head_pooling(encoder, kind)
    named = (encoder.model.config.architectures or [""])[0]
    tuned = named.endswith(tuple(ENDINGS.values()))
    plan = Plan((), encoder.blocks)
    model = make_classifier(encoder, plan, labels, seed=seed, kind=kind, fresh_head=tuned)
    return Head(model, encoder.family.final_norm).requires_grad_(True)


def take_family_head(
    encoder: Encoder, labels: Sequence[str], kind: Kind, *, seed: int, fresh_head: bool
) -> Head | None:
    """Return the head of a family as trainings start it, in float32, on the CPU and in eval mode.

    None if more of it than the layer that gives the outputs is random.

    Args:
        encoder, labels, kind, seed, fresh_head: as for `make_classifier`.
    """
    plan = Plan((), encoder.blocks)
    options: dict[str, Any] = {"seed": seed, "kind": kind, "fresh_head": fresh_head}
    # The mean that a head reads is of tokens that were normed.
    normed = choose_solved_pooling(encoder, kind) == "mean-normed"
    norm = None if normed else encoder.family.final_norm
    head = Head(make_classifier(encoder, plan, labels, **options), norm)
    own = {f"{head.output[0]}.{name}" for name in ("weight", "bias")}
    if not list_random(encoder, labels, **options) <= own:
        return None
    unshare_weights(head.model)
    return head.requires_grad_(False).cpu()


def scale_logits(model: Any, factor: float) -> None:
    """Multiply the logits of a transformers model by a factor, in its last layer; in place."""
    with torch.no_grad():
        for parameter in find_output(model)[1].parameters():
            parameter.mul_(factor)


def find_output(model: Any) -> tuple[str, nn.Linear]:
    """Return the layer that gives a classifier's outputs, and its name."""
    inner = f".{base_of(model)[1]}"
    # Of what peft saves in full there are two, the one that is used after the other. XLM-RoBERTa
    # and CamemBERT list their encoder, with its pooler, after the classifier.
    layers = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear)]
    return [layer for layer in layers if inner not in f".{layer[0]}"][-1]
