"""What a scan computes, of what, and with which encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layerscout.data import Split, Task
from layerscout.plans import ScanRequest
from layerscout.runtime import InputError
from layerscout.scanning.extraction import Extractor
from layerscout.scores import SCORES, Source


@dataclass(frozen=True, eq=False)
class ScanContext:
    """What the scores of a scan are computed from.

    Attributes:
        task: the task.
        keys: of the scores.
        request: what was asked for.
        extractor: the encoder, and how it reads.
    """

    task: Task
    keys: Sequence[str]
    request: ScanRequest
    extractor: Extractor

    @property
    def blocks(self) -> int:
        """L."""
        return self.extractor.encoder.blocks

    def select(self, *sources: Source) -> list[str]:
        """Give the keys of the scores that are computed from these sources."""
        return [key for key in self.keys if SCORES[key].source in sources]

    def held_out(self) -> Split:
        """Give the held-out examples.

        Raises:
            InputError: if there are none.
        """
        if self.task.validation is None:
            raise InputError(
                f"{self.task.name} has no held-out examples, and too few to set a tenth aside (at "
                "least 2 examples of each class always stay in training); use --validation FILE"
            )
        return self.task.validation
