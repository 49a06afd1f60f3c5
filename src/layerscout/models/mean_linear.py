"""A classifier of any family: one linear layer on the mean of the last state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class MeanLinear(PreTrainedModel):  # type: ignore[misc]  # of an untyped library
    """Linear on the mean over all tokens but padding. Tamkin et al. 2020, §2.

    It is made like transformers' own classes of classifiers, which have none like it.
    """

    base_model_prefix = "encoder"
    reads_mean = True
    _supports_sdpa = True

    def __init__(self, config: Any) -> None:
        """Make an encoder without a pooler, and the layer, both with random weights."""
        super().__init__(config)
        self.encoder = AutoModel.from_config(config)
        if hasattr(self.encoder, "pooler"):
            self.encoder.pooler = None
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        nn.init.normal_(self.classifier.weight, std=0.02)
        nn.init.zeros_(self.classifier.bias)

    @classmethod
    def from_config(cls, config: Any, dtype: torch.dtype = torch.float32) -> MeanLinear:
        """Make one with random weights."""
        model: MeanLinear = cls(config).to(dtype)
        return model

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **inputs: Any,
    ) -> SequenceClassifierOutput:
        """Return the logits, (b, K)."""
        if token_type_ids is not None:  # which not every encoder takes
            inputs["token_type_ids"] = token_type_ids
        states = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, **inputs
        ).last_hidden_state
        if attention_mask is None:
            attention_mask = torch.ones(states.shape[:2], device=states.device)
        weights = attention_mask.to(states.dtype)[:, :, None]
        mean = (states * weights).sum(dim=1) / weights.sum(dim=1)
        return SequenceClassifierOutput(logits=self.classifier(mean))
