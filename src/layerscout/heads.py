"""The head of a classifier by itself, reading states instead of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from layerscout.encoder import Encoder
from layerscout.errors import InputError
from layerscout.plans import Plan
from layerscout.surgery import base_of, classifier, reads_first_token


class _Passing(nn.Module):
    """Stands for the bare model of a classifier: what it is given is the last state already."""

    def __init__(self, pooler: nn.Module | None, norm: nn.Module | None) -> None:
        super().__init__()
        self.pooler, self.norm = pooler, norm

    def forward(self, *_: Any, inputs_embeds: Float[Tensor, "b 1 d"], **__: Any) -> Any:
        from transformers.modeling_outputs import BaseModelOutputWithPooling

        state = inputs_embeds if self.norm is None else self.norm(inputs_embeds)
        pooled = None if self.pooler is None else self.pooler(state)
        return BaseModelOutputWithPooling(last_hidden_state=state, pooler_output=pooled)


class _First(nn.Module):
    def forward(self, state: Float[Tensor, "b T d"]) -> Float[Tensor, "b d"]:
        return state[:, 0]


class Head(nn.Module):
    """A family's classification head, pooler and final norm included, and nothing else.

    Attributes:
        model: the classifier without its encoder.
    """

    def __init__(self, model: Any, norm: str | None) -> None:
        """Take the head out of a classifier; `norm` is the path of the family's final norm."""
        super().__init__()
        bare, prefix = base_of(model)
        pooler = getattr(bare, "pooler", None)
        if isinstance(pooler, nn.Linear):  # ALBERT's, which takes the first token outside of it
            pooler = nn.Sequential(_First(), pooler, bare.pooler_activation)
        final = None if norm is None else bare.get_submodule(norm)
        setattr(model, prefix.removesuffix("."), _Passing(pooler, final))
        self.model = model

    def forward(self, states: Float[Tensor, "b d"]) -> Float[Tensor, "b K"]:
        """Give the logits for the first token's states."""
        logits: Tensor = self.model(inputs_embeds=states[:, None]).logits
        return logits


def family_head(encoder: Encoder, labels: Sequence[str], seed: int) -> Head:
    """Make the head that the family classifies with, as the library loads it.

    Args:
        encoder: brings the parts that its checkpoint has; it is not changed, and nothing is shared.
        labels: class names by id; a single one makes a head for numbers.
        seed: draws the random part.

    Raises:
        InputError: if the head reads more than the first token.
    """
    model = classifier(encoder, Plan((), encoder.blocks), labels, seed=seed)
    if not reads_first_token(model):
        raise InputError(
            f"the head of {encoder.name} reads all tokens, so it cannot be a probe on the first "
            "one; use --probe linear"
        )
    return Head(model, encoder.family.final_norm).requires_grad_(True)
