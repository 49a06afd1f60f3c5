"""The result of a scan, with its files and the plans that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from layerscout.errors import InputError, check_integer, make_unknown_error
from layerscout.files import read_json
from layerscout.plans import (
    HeadSuggestion,
    Plan,
    PlanRequest,
    add_options,
    resolve_request,
    suggest_default_head,
)
from layerscout.reporting import Displayed
from layerscout.scanning.planning import Planning, compare_strategies, name_head
from layerscout.scores import DEFAULT, Score

if TYPE_CHECKING:
    import pandas as pd

    from layerscout.plans import PlanOptions


@dataclass(frozen=True, repr=False)
class Scan(Displayed):
    """The result of a scan; the content of `scan.json`.

    Attributes:
        model: name, family, sizes and parameter counts.
        task: name, kind, labels, metric and how many examples were there and were read.
        settings: all that the scores depend on.
        scores: by key; entry ℓ of a score's values is state ℓ, from the embeddings (0) to L.
        warnings: what the reader of the scores should know.
        seconds: time spent tokenising, in the forward pass and on the scores.
        diagnostics: how smooth the curves are and how well the scores agree, with each other and
            with the probe.
        stability: how the ranks move over further checkpoints of the model, if there are any.
        passed: how many "texts" the model ran on for it, now or when their states were kept, and
            in how many "seconds"; empty where that is not known.
    """

    model: Mapping[str, Any]
    task: Mapping[str, Any]
    settings: Mapping[str, Any]
    scores: Mapping[str, Score]
    warnings: tuple[str, ...]
    seconds: Mapping[str, float]
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    stability: Mapping[str, Any] | None = None
    passed: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        key, model = self.leading_score(), self.model
        found = f"best of {model['blocks']} {self.scores[key].of} by {key}: {self.best()}"
        return f"<Scan: {model['name']} on {self.task['name']}, {found}>"

    def best(self, score: str | None = None) -> int | None:
        """Return ℓ*, the best state among 1..L by `score`; None if it is undefined everywhere.

        Args:
            score: by default the one of `leading_score`.

        Raises:
            InputError: if the scan does not have that score.
        """
        return self.scores[self._find(score)].best()

    def _find(self, score: str | None) -> str:
        """Return the score itself, or the leading one for None; raise if the scan lacks it."""
        score = score or self.leading_score()
        if score not in self.scores:
            raise make_unknown_error("score of this scan", score, self.scores)
        return score

    @add_options(PlanRequest)
    def plan(self, strategy: str | PlanRequest = "auto", **options: Unpack[PlanOptions]) -> Plan:
        """Turn a strategy into the plan for this model and task; see `planning`."""
        return self.planning(strategy, **options).choice.plan

    @add_options(PlanRequest)
    def planning(
        self, strategy: str | PlanRequest = "auto", **options: Unpack[PlanOptions]
    ) -> Planning:
        """Compare the strategies for this model and task, and choose one.

        Args:
            strategy: such as "best-down:3@top", or a notation, such as "(6, 8, 12)"; or a whole
                `PlanRequest`, in place of `options`.
            **options: all other options, such as `budget` or `method`: the attributes
                of `layerscout.plans.PlanRequest`.

        Raises:
            InputError: if the strategy or the method is unknown or does not fit the model or the
                other, the scan does not have what it needs, or nothing fits into the budget.
        """
        request = resolve_request(PlanRequest, strategy, options, "strategy")
        return compare_strategies(self, request)

    def leading_score(self) -> str:
        """Return the score that plans rest on by default: the default one, if it is there.

        Otherwise the first of states, or else the first.
        """
        of_states = (key for key, score in self.scores.items() if score.of == "states")
        return DEFAULT if DEFAULT in self.scores else next(of_states, next(iter(self.scores)))

    def basis(self, score: str | None = None) -> tuple[int | None, Sequence[float | None] | None]:
        """Return what strategies rest on: ℓ* and the values of a score of blocks; None without.

        Args:
            score: of states, which ℓ* is the best of; or of blocks, which then ranks them, and ℓ*
                is the best state by `leading_score`, as it is where there is none.

        Raises:
            InputError: if the scan does not have that score.
        """
        score = self._find(score)
        if self.scores[score].of == "blocks":
            of_states = self.leading_score()
            best = self.best(of_states) if self.scores[of_states].of == "states" else None
            return best, self.scores[score].values
        ranks = (s for s in self.scores.values() if s.of == "blocks" and s.best() is not None)
        return self.best(score), next((s.values for s in ranks), None)

    def name_head(self, score: str | None = None) -> HeadSuggestion:
        """Name the state that a head should read, which `auto` follows, and say why.

        Args:
            score: as for `basis`.

        Raises:
            InputError: as `basis`.
        """
        key = self._find(score)
        key = key if self.scores[key].of == "states" else self.leading_score()
        if self.scores[key].of == "blocks":
            return suggest_default_head(self.model["blocks"], "no score of states was computed")
        return name_head(key, self.scores[key], self.model["blocks"])

    def advise(self) -> dict[str, Any] | None:
        """Return the advice that opens the report: the state for the head, and the plan of "auto".

        Returns:
            "head" and "because", "plan", "head_end", "loss" and "stages" as in `plan.json`, and
            "relative", its training FLOPs as a share of full fine-tuning's; None where "auto"
            finds no plan. None where no state has any score, as for texts that are all the same:
            something is wrong there.
        """
        if all(score.best() is None for score in self.scores.values()):
            return None
        named = self.name_head()
        chosen = dict[str, Any].fromkeys(("plan", "head_end", "loss", "stages", "relative"))
        with suppress(InputError):  # what is shared or unknown in this model; `planning` says it
            planning = self.planning()
            named = planning.named
            chosen = {
                "plan": planning.choice.plan.as_dict(),
                "head_end": planning.head_end,
                "loss": planning.loss,
                "stages": planning.stages,
                "relative": planning.relative,
            }
        return {"head": named.state, "because": named.reason, **chosen}

    def table(self) -> pd.DataFrame:
        """Return the scores as a data frame with a row per state and a column per score."""
        import pandas as pd

        columns = {key: pd.Series(s.values, dtype="float64") for key, s in self.scores.items()}
        return pd.DataFrame(columns).rename_axis("state")

    def as_dict(self) -> dict[str, Any]:
        """Return the content of `scan.json`."""
        return {
            "layerscout": version("layerscout"),
            "verb": "scan",
            **asdict(self),
            "best": {key: score.best() for key, score in self.scores.items()},
            "warnings": list(self.warnings),
            "advice": self.advise(),
        }

    def save(self, folder: str | Path) -> None:
        """Write `scan.json` and `scan.html` into `folder`, which is made if needed.

        Raises:
            InputError: if a file cannot be written.
        """
        from layerscout.reporting import write_result

        write_result(self.as_dict(), folder)

    @classmethod
    def load(cls, folder: str | Path) -> Scan:
        """Read the `scan.json` that `save` wrote into `folder`, or that file itself.

        Raises:
            InputError: if there is none, or it is not one.
        """
        path = Path(folder) if Path(folder).is_file() else Path(folder) / "scan.json"
        try:
            content = read_json(path)
            parts = {part: content[part] for part in ("model", "task", "settings", "seconds")}
            parts |= {
                part: content.get(part) or {} for part in ("diagnostics", "stability", "passed")
            }
            for part, value in (parts | {"scores": content["scores"]}).items():
                if not isinstance(value, dict):
                    raise TypeError(f"its {part} is {value!r:.40}")
            if not content["scores"]:
                raise ValueError("it has no scores")
            blocks = check_integer("blocks", content["model"]["blocks"], 1)
            scores = {key: Score.from_dict(score) for key, score in content["scores"].items()}
            for key, score in scores.items():
                known = [value for value in score.values if value is not None]
                if len(score.values) != blocks + 1 or not all(map(isfinite, known)):
                    raise ValueError(f"{key} is not a score of {blocks + 1} finite values")
            parts["stability"] = parts["stability"] or None
            return cls(scores=scores, warnings=tuple(content["warnings"]), **parts)
        except FileNotFoundError as error:
            raise InputError(f"there is no scan.json in {folder}; run layerscout scan") from error
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error
        except KeyError as error:
            raise InputError(f"{path} is not a scan: it lacks {error}; scan again") from error
        except (ValueError, TypeError, AttributeError, InputError) as error:
            raise InputError(f"{path} is not a scan: {error!s:.300}; scan again") from error
