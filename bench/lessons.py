"""What a practitioner should believe of the four papers, and the verdicts behind each line."""

from collections.abc import Mapping, Sequence

from claims import HELD, NOT_HELD, UNCLEAR, Claim

# A line, and the claims that bear it out, by recipe and start, with their verdicts on the base-size
# model, on small encoders (None where it was not judged), and on all pairs where these are named.
LESSONS: Sequence[tuple[str, Mapping[tuple[str, str], tuple[str | None, ...]]]] = [
    (
        "**States with a low ν tend to be easier to read** (mean r 0.72 at base size, 0.47 on "
        "small encoders, 0.26 over all 25 pairs), but the lowest was the best in only 3 of 11 "
        "pairs of model and task. CCA and the debiased ν go with probes better.",
        {
            ("xie2022-scores", "ν predicts probing: "): (HELD, HELD),
            ("xie2022-deberta", "ν predicts probing: "): (None, UNCLEAR),
            ("xie2022-scores", "CCA predicts"): (UNCLEAR, UNCLEAR, HELD),
            ("xie2022-scores", "(ours) the debiased"): (UNCLEAR, UNCLEAR, HELD),
        },
    ),
    (
        "**Blocks at ℓ* were not clearly better than as many at the top, or in the middle.**",
        {
            ("xie2022-table6", "1 to 3 blocks at ℓ* beat as many top blocks (head on"): (
                UNCLEAR,
                UNCLEAR,
            ),
            ("xie2022-table6", "1 to 3 blocks at ℓ* beat as many top blocks (head at"): (
                UNCLEAR,
                UNCLEAR,
            ),
            ("xie2022-middle", "blocks at ℓ*"): (UNCLEAR, UNCLEAR, UNCLEAR),
        },
    ),
    (
        "**All blocks above ℓ* stayed within 0.05 of full fine-tuning** (behind by 0.023, -0.003 "
        "to 0.048, over all pairs). That all blocks up to ℓ* with the head there can replace it is "
        "not shown (behind by 0.045, 0.015 to 0.075).",
        {
            ("xie2022-table6", "(1, ℓ*, ℓ*) is near full"): (UNCLEAR, UNCLEAR, UNCLEAR),
            ("xie2022-table6", "best-up is near full"): (UNCLEAR, HELD, HELD),
        },
    ),
    (
        "**Score many rows; how many depends on the task.** On SST-2, 5,000 rows gave the ν of "
        "20,000 within 4 %; on MNLI, 3,750 were about 35 % off that of 12,000.",
        {
            ("xie2022-scarcity", "ν of a few thousand"): (UNCLEAR, UNCLEAR),
            ("xie2022-imbalance", "the state with the lowest ν stays"): (UNCLEAR, UNCLEAR),
        },
    ),
    (
        "**Tuning lowers ν most in the upper states** (on the training rows).",
        {("xie2022-after-tuning", "tuning lowers ν"): (HELD, HELD)},
    ),
    (
        "**After short tuning do not expect two seeds to agree on the upper states**: at base size "
        "CKA fell below 0.2 in some on every task. Two clusters of states grew on four of five "
        "tasks.",
        {
            ("phang2021-cka", "the upper states of two seeds"): (NOT_HELD, UNCLEAR),
            ("phang2021-cka", "tuning creates two clusters"): (UNCLEAR, HELD),
        },
    ),
    (
        "**Do not cut a tuned model without tuning its head again**: without its top block every "
        "model lost more than 0.05 on every task. Block 1 was never the one that cost most.",
        {
            ("phang2021-truncation", "top blocks of a tuned model"): (NOT_HELD, NOT_HELD),
            ("phang2021-truncation", "skipping block 1"): (NOT_HELD, NOT_HELD),
        },
    ),
    (
        "**At base size, losing early pretrained blocks cost far more than losing late ones, and "
        "the order of blocks mattered**; on small encoders both are unclear.",
        {
            ("tamkin2020-localized", "three early"): (HELD, UNCLEAR),
            ("tamkin2020-permutation", "a model with shuffled"): (HELD, UNCLEAR),
        },
    ),
    (
        "**Nothing shows that kept norms or a higher rate help re-initialised blocks**; one to "
        "three tasks cannot exclude a small gain.",
        {
            ("tamkin2020-norms", "keeping the norms"): (UNCLEAR, UNCLEAR),
            ("tamkin2020-rate", "5 times the rate"): (UNCLEAR, UNCLEAR),
        },
    ),
    (
        "**Five blocks were near full fine-tuning on MiniLM-L6, but not because Fisher chose them, "
        "as far as is shown**: they are five of its six, and the best block alone did not clearly "
        "beat the worst. The ranks moved as much as shuffled ones would with a real schedule, and "
        "hardly as released.",
        {
            ("lodha2023-layers", "the 5 best blocks"): (UNCLEAR, HELD),
            ("lodha2023-released", "the 5 best blocks"): (None, UNCLEAR),
            ("lodha2023-layers", "the best block alone"): (UNCLEAR, UNCLEAR),
            ("lodha2023-ranks", "Fisher ranks of blocks hold during training (with"): (
                NOT_HELD,
                NOT_HELD,
            ),
            ("lodha2023-ranks", "Fisher ranks of blocks hold during training (as"): (HELD, HELD),
        },
    ),
]


def list_lessons(*judged: Sequence[Claim]) -> str:
    """Write what to believe.

    Args:
        *judged: the claims as they are judged on each set of models.

    Raises:
        SystemExit: if a line of `LESSONS` rests on a verdict that the records do not give.
    """
    lines = []
    for number, (line, grounds) in enumerate(LESSONS, start=1):
        for (recipe, start), verdicts in grounds.items():
            for some, verdict in zip(judged, verdicts, strict=False):
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
    return "\n".join(lines)
