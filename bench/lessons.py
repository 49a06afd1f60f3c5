"""What a practitioner should believe of the four papers, and the verdicts behind each line."""

from collections.abc import Mapping, Sequence

from claims import HELD, NOT_HELD, UNCLEAR, Claim

# A line, and the claims that bear it out, by recipe and start, with their verdicts on the base-size
# model and on small encoders (None where it was not judged).
LESSONS: Sequence[tuple[str, Mapping[tuple[str, str], tuple[str | None, str | None]]]] = [
    (
        "**ν finds states that are easy to read.** The lower ν of a state, the better a probe on "
        "it. That CCA or the debiased ν do so better is not shown, nor that they do worse.",
        {
            ("xie2022-scores", "ν predicts probing: "): (HELD, HELD),
            ("xie2022-scores", "CCA predicts"): (UNCLEAR, UNCLEAR),
            ("xie2022-scores", "(ours) the debiased"): (UNCLEAR, UNCLEAR),
        },
    ),
    (
        "**It is not shown that ν finds the blocks to tune.** Blocks at ℓ* were neither clearly "
        "better than as many at the top nor than those at the middle. "
        "[Whose advice to follow](advice.md) is the larger test.",
        {
            ("xie2022-table6", "1 to 3 blocks at ℓ* beat as many top blocks (head on"): (
                UNCLEAR,
                UNCLEAR,
            ),
            ("xie2022-table6", "1 to 3 blocks at ℓ* beat as many top blocks (head at"): (
                UNCLEAR,
                UNCLEAR,
            ),
            ("xie2022-middle", "blocks at ℓ*"): (UNCLEAR, UNCLEAR),
        },
    ),
    (
        "**One block at ℓ* is no safe replacement for full fine-tuning**, nor are all blocks "
        "from ℓ* to the top on the base-size model; on small encoders the latter came near.",
        {
            ("xie2022-table6", "(1, ℓ*, ℓ*) is near full"): (UNCLEAR, UNCLEAR),
            ("xie2022-table6", "best-up is near full"): (UNCLEAR, HELD),
        },
    ),
    (
        "**Score many rows.** With a few thousand of them ν can still be off by more than 10 % and "
        "its lowest state elsewhere, with imbalanced classes too.",
        {
            ("xie2022-scarcity", "ν of a few thousand"): (UNCLEAR, UNCLEAR),
            ("xie2022-imbalance", "the state with the lowest ν stays"): (UNCLEAR, UNCLEAR),
            ("xie2022-imbalance", "ν moves less with imbalance"): (HELD, HELD),
        },
    ),
    (
        "**Tuning changes the upper states most**: there ν falls by a larger factor.",
        {("xie2022-after-tuning", "tuning lowers ν"): (HELD, HELD)},
    ),
    (
        "**Do not expect two seeds to agree on upper states**, nor two clear clusters of states "
        "after tuning, on a base-size model with few rows.",
        {
            ("phang2021-cka", "the upper states of two seeds"): (NOT_HELD, UNCLEAR),
            ("phang2021-cka", "tuning creates two clusters"): (UNCLEAR, HELD),
        },
    ),
    (
        "**Do not cut a tuned model without tuning its head again** (small encoders only; the "
        "base-size model has no record of this yet).",
        {("phang2021-truncation", "top blocks of a tuned model"): (None, NOT_HELD)},
    ),
    (
        "**What pretraining has put into the early blocks, in their order, matters most.** "
        "Shuffled blocks are about as good as random ones; early ones help more than late ones.",
        {
            ("tamkin2020-localized", "pretrained blocks help more"): (HELD, HELD),
            ("tamkin2020-permutation", "a model with shuffled"): (HELD, HELD),
        },
    ),
    (
        "**For reinitialised blocks, kept norms do not help**, and on the base-size model a higher "
        "learning rate does not either.",
        {
            ("tamkin2020-norms", "keeping the norms"): (HELD, HELD),
            ("tamkin2020-rate", "5 times the rate"): (HELD, UNCLEAR),
        },
    ),
    (
        "**The five blocks with the most Fisher information are near full fine-tuning**, but it is "
        "not shown that the best one alone beats the worst, and ranks do not hold during training "
        "with a real schedule.",
        {
            ("lodha2023-layers", "the 5 best blocks"): (HELD, HELD),
            ("lodha2023-layers", "the best block alone"): (UNCLEAR, UNCLEAR),
            ("lodha2023-ranks", "Fisher ranks of blocks hold during training (with"): (
                NOT_HELD,
                NOT_HELD,
            ),
        },
    ),
]


def summarise_verdicts(base: Sequence[Claim], small: Sequence[Claim]) -> str:
    """Write what to believe, and how many claims are judged how.

    Args:
        base: what is judged on the base-size model.
        small: what is judged on small encoders.

    Raises:
        SystemExit: if a line of `LESSONS` rests on a verdict that the records do not give.
    """
    lines = []
    for number, (line, grounds) in enumerate(LESSONS, start=1):
        for (recipe, start), verdicts in grounds.items():
            for some, verdict in zip((base, small), verdicts, strict=True):
                found = [
                    claim.verdict
                    for claim in some
                    if claim.recipe == recipe and claim.text.startswith(start)
                ]
                if found != ([] if verdict is None else [verdict]):
                    raise SystemExit(
                        f"lesson {number} rests on {recipe}, {start!r}: {verdict}; the records say "
                        f"{found}; rewrite it"
                    )
        # Bare asterisks are emphasis in Markdown.
        lines.append(f"{number}. {line}".replace("ℓ*", "ℓ\\*"))
    first, second = (
        ", ".join(
            f"{sum(claim.verdict == one for claim in some)} {one}"
            for one in (HELD, NOT_HELD, UNCLEAR)
        )
        for some in (base, small)
    )
    return "\n".join(
        [
            "## What to believe",
            "",
            *lines,
            "",
            f"Each line rests on verdicts below. Base size: {first}. Small encoders: {second}. "
            "**Most of what is unclear is so because a few tasks and seeds cannot tell**; the "
            "intervals say which differences may still be hidden.",
        ]
    )
