"""Training from a cut against training of everything, and what a run promises."""

import math

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_sample_weight
from torch.nn.functional import cross_entropy
from torch.optim.optimizer import register_optimizer_step_pre_hook
from transformers import get_linear_schedule_with_warmup

from conftest import whole_only
from inputs import expect_refused
from layerscout.data import Targets, shuffle_batches, shuffle_plainly
from layerscout.models import Encoder, base_of, make_classifier, park_embeddings, resume_at
from layerscout.models.encoder import shorten_weights
from layerscout.plans import FULL, LoRA, Plan, Settings, learning_rate_at
from layerscout.states import Examples, compute_logits, predict
from layerscout.tuning import stepping, training
from layerscout.tuning.stepping import Epoch, pick_epoch, weigh_classes
from tiny import EACH_FAMILY, SENTENCES, tiny_checkpoint
from tuned import (
    NAMES,
    copied,
    differing,
    examples_of,
    fitted,
    labels_for,
    load,
    trained,
    without_key_biases,
)

PLANS = (
    "(4, 4, 4)",  # top:1
    "(2, 2, 4)",  # one in the middle, frozen ones above
    "blocks:1,3@4",
    "blocks:2,4@4",
    "(1, 3, 3)",  # embeddings frozen
    "(1, 3, 4)",
    "(3, 3, 3)",
    "head:4",
    "head:2",
    "emb+(3, 3, 4)",
    "emb+head:4",
    "full",
)


@pytest.fixture(scope="module", params=EACH_FAMILY)
def folder(request, tmp_path_factory):
    return tiny_checkpoint(tmp_path_factory.mktemp("of") / request.param, request.param)


@pytest.fixture(scope="module")
def double(folder):
    """Load a family's checkpoint in float64."""
    encoder = Encoder.load(folder, device="cpu")
    encoder.model.double()
    return encoder


@pytest.fixture(scope="module")
def encoder(folder):
    return Encoder.load(folder, device="cpu")


# --- From the cut ------------------------------------------------------------------------------


def gradients(model, found, labels):
    """Return the gradients of what is trained; nothing else may have any."""
    model.zero_grad(set_to_none=True)
    cross_entropy(found, labels).backward()
    assert all(p.grad is None for p in model.parameters() if not p.requires_grad)
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("notation", PLANS)
def test_logits_and_gradients_from_the_cut_are_those_of_the_whole(double, notation):
    encoder, plan = fitted(double, notation)
    model = make_classifier(encoder, plan, NAMES, seed=3).double().eval()
    tokens, labels = encoder.tokenize(SENTENCES[:6]), torch.tensor([0, 1, 2, 0, 1, 2])
    rows = np.array([4, 0, 5, 2, 1, 3])
    inputs = encoder.batch(tokens, rows)
    whole = model(**inputs).logits
    expected = gradients(model, whole, labels)
    assert whole.dtype == torch.float64 and all(map(torch.any, expected.values()))
    cut = 0 if plan.cut is None else plan.cut
    state = encoder.cut(inputs, cut)
    assert not state.requires_grad
    if plan.cut is None:
        return
    with resume_at(base_of(model)[0], encoder.family, state, cut):
        found = model(**inputs).logits
    torch.testing.assert_close(found, whole, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradients(model, found, labels), expected, rtol=1e-9, atol=1e-9)
    assert state.grad is None and not any(p.grad is not None for p in encoder.model.parameters())


@pytest.mark.parametrize("notation", ["head:4", "head:1"])
def test_a_head_needs_the_first_token_only(encoder, notation):
    """And what is computed anew in every epoch is what the cache holds."""
    plan = fitted(encoder, notation)[1]
    model = make_classifier(encoder, plan, NAMES)
    labels, rows = labels_for(6), np.array([3, 0, 5])
    whole = model(**encoder.batch(encoder.tokenize(SENTENCES[:6]), rows)).logits
    for limit in (10**9, 0):
        examples = examples_of(encoder, plan, labels, limit=limit)
        assert examples.trunk.reads and examples.tokens.lengths.max() == 1
        assert examples.trunk.kept == (limit > 0)
        found = compute_logits(encoder, model, examples, rows)
        torch.testing.assert_close(found, whole, rtol=1e-5, atol=1e-5)


def test_a_head_that_reads_every_token_gets_them(tmp_path):
    encoder = load(tmp_path, "modernbert", classifier_pooling="mean")
    plan = fitted(encoder, "head:2")[1]
    examples, rows = examples_of(encoder, plan, labels_for(6)), np.array([3, 0, 5])
    model = make_classifier(encoder, plan, NAMES)
    whole = model(**encoder.batch(encoder.tokenize(SENTENCES[:6]), rows)).logits
    assert examples.trunk.reads is None and examples.tokens.lengths.min() > 1
    found = compute_logits(encoder, model, examples, rows)
    torch.testing.assert_close(found, whole, rtol=1e-5, atol=1e-5)


def test_predictions_are_in_the_order_of_the_examples(encoder):
    plan = fitted(encoder, "full")[1]
    model = make_classifier(encoder, plan, NAMES).train()
    found = predict(encoder, model, examples_of(encoder, plan, labels_for(9)))
    with torch.no_grad():
        for row, text in enumerate(SENTENCES[:9]):
            alone = model(**encoder.batch(encoder.tokenize([text]), np.array([0]))).logits[0]
            torch.testing.assert_close(found[row], alone, rtol=1e-4, atol=1e-5)
    assert not model.training and found.dtype == torch.float32


@pytest.mark.parametrize("notation", ["(2, 3, 4)", "head:3"])
def test_training_from_the_cache_is_training_without_it(encoder, notation):
    """The same dropout, so the same curve, but for the rounding of other paddings."""
    kept, lost = (trained(encoder, notation, limit=limit) for limit in (10**9, 0))
    for one, other in zip(kept[0].curve, lost[0].curve, strict=True):
        assert one.training_loss == pytest.approx(other.training_loss, abs=1e-5)
        assert one.loss == pytest.approx(other.loss, abs=1e-5) and one.value == other.value
    found, expected = (without_key_biases(one[1]) for one in (kept, lost))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", [FULL, LoRA(rank=2)], ids=["full", "lora"])
def test_training_in_bfloat16(folder, encoder, method):
    """What is trained is in float32, also where an accelerator holds the rest in bfloat16."""
    if encoder.family.float32_only:
        expect_refused("bfloat16", Encoder.load, folder, device="cpu", precision="bfloat16")
        return
    losses = []
    for held in ("float32", "bfloat16"):
        low = Encoder.load(folder, device="cpu", precision="bfloat16")
        shorten_weights(low.model, held)
        run, kept, model = trained(low, "(3, 4, 4)", epochs=1, method=method)
        assert {tensor.dtype for tensor in kept.values()} == {torch.float32} and not run.diverged
        frozen = {p.dtype for p in model.parameters() if not p.requires_grad}
        assert getattr(torch, held) in frozen and (held == "bfloat16" or len(frozen) == 1)
        losses.append(run.curve[-1].training_loss)
    assert math.isfinite(losses[0]) and losses[1] == pytest.approx(losses[0], rel=0.05)


@pytest.mark.parametrize("notation", ["(3, 4, 4)", "head:2"])
def test_what_starts_at_the_cut_needs_no_embeddings(encoder, notation):
    encoder, plan = fitted(encoder, notation)
    model, rows = make_classifier(encoder, plan, NAMES), np.arange(6)
    examples = examples_of(encoder, plan, labels_for(6))
    expected, before = compute_logits(encoder, model, examples, rows), copied(encoder.model)
    inner = base_of(model)[0]
    with park_embeddings(encoder.model, inner):
        assert encoder.model.get_input_embeddings().weight.numel() == 0
        assert torch.equal(compute_logits(encoder, model, examples, rows), expected)
    assert differing(copied(encoder.model), before) == set()
    tables = [one.get_input_embeddings().weight for one in (encoder.model, inner)]
    assert tables[0].data_ptr() == tables[1].data_ptr()
    whole = model(**encoder.batch(encoder.tokenize(SENTENCES[:6]), rows)).logits
    torch.testing.assert_close(whole, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("notation", ["blocks:1,3@4", "(2, 2, 3)", "full"])
def test_what_is_frozen_stays_and_what_is_tuned_changes(encoder, notation):
    encoder, plan = fitted(encoder, notation)
    before = copied(encoder.model)
    modes = [module.training for module in encoder.model.modules()]
    start = copied(make_classifier(encoder, plan, NAMES, seed=0))
    _, kept, model = trained(encoder, notation, weight_decay=0.1, epochs=1)
    assert differing(copied(encoder.model), before) == set()
    assert [module.training for module in encoder.model.modules()] == modes
    changed = differing(copied(model), start)
    names = {name for name, p in model.named_parameters() if p.requires_grad}
    assert changed <= names == kept.keys()
    blocks = f"{base_of(model)[1]}{encoder.family.blocks}."
    inside = {int(n.removeprefix(blocks).split(".")[0]) + 1 for n in changed if blocks in n}
    shared = len(base_of(model)[0].get_submodule(encoder.family.blocks)) == 1
    assert inside == ({1} if shared and plan.tuned else set(plan.tuned))
    of_head = {name for name in names if name.startswith(("classifier.", "score."))}
    assert of_head and of_head <= changed


# --- A run -------------------------------------------------------------------------------------


def test_equals_a_plain_training_loop(still):
    """AdamW, the schedule, clipping and the order of the examples, as everyone writes them."""
    encoder, plan = fitted(still, "(2, 3, 4)")
    options = {"epochs": 3, "batch_size": 5, "warmup": 0.3, "weight_decay": 0.1}
    run, kept, _ = trained(still, "(2, 3, 4)", max_grad_norm=0.5, keep="last", seed=7, **options)
    model = make_classifier(encoder, plan, NAMES, seed=7)
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p], "weight_decay": 0.1 * (p.ndim > 1)} for p in parameters]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, foreach=False)
    schedule = get_linear_schedule_with_warmup(optimizer, round(0.3 * 9), 9)
    tokens, labels = encoder.tokenize(SENTENCES[:12]), torch.from_numpy(labels_for(12))
    order = np.random.default_rng(7)
    means = []
    for _ in range(3):
        total = 0.0
        for rows in shuffle_batches(tokens.lengths, 5, order):
            loss = cross_entropy(model(**encoder.batch(tokens, rows)).logits, labels[rows])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()
            schedule.step()
            total += loss.item() * len(rows)
        means.append(total / 12)
    assert [epoch.training_loss for epoch in run.curve] == pytest.approx(means, abs=1e-5)
    expected = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    found, expected = without_key_biases(kept), without_key_biases(expected)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("batching", ["length", "shuffled"])
def test_batches_that_make_up_a_step_equal_one_large_batch(still, batching):
    """The loss of a step is the mean over its examples, also where the last batch is smaller."""
    options = {"epochs": 2, "max_grad_norm": 0.5, "keep": "last", "seed": 7, "batching": batching}
    parts, found, _ = trained(still, "(2, 3, 4)", batch_size=2, accumulation=4, **options)
    whole, expected, _ = trained(still, "(2, 3, 4)", batch_size=8, **options)
    assert [one.training_loss for one in parts.curve] == pytest.approx(
        [one.training_loss for one in whole.curve], abs=1e-5
    )
    found, expected = without_key_biases(found), without_key_biases(expected)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)
    assert Settings(batch_size=2, accumulation=4).steps_per_epoch(12) == 2


def test_balanced_classes_count_alike(still):
    """Every example's loss counts by scikit-learn's weight of its class, over batches of a step."""
    options = {"epochs": 1, "keep": "last", "seed": 7, "class_weights": "balanced", "warmup": 0.0}
    run, _, _ = trained(still, "(2, 3, 4)", batch_size=4, accumulation=3, **options)
    encoder, plan = fitted(still, "(2, 3, 4)")
    model, labels = make_classifier(encoder, plan, NAMES, seed=7), labels_for(12)
    weights = compute_sample_weight("balanced", labels)
    assert len(set(weights)) > 1
    inputs = encoder.batch(encoder.tokenize(SENTENCES[:12]), np.arange(12))
    losses = cross_entropy(model(**inputs).logits, torch.from_numpy(labels), reduction="none")
    expected = float(np.mean(losses.detach().numpy() * weights))
    assert run.curve[0].training_loss == pytest.approx(expected, abs=1e-5)
    few = Examples(None, Targets.of(np.array([0, 0, 2])), None)
    assert weigh_classes(few, model).tolist() == [0.75, 1.0, 1.5]  # class 1 does not occur


def test_a_batch_of_a_step_whose_loss_is_not_finite_changes_nothing(still, monkeypatch):
    losses = []

    def spoil(logits, labels, *weights):
        losses.append(cross_entropy(logits, labels))
        return losses[-1] * (float("nan") if len(losses) == 2 else 1.0)

    monkeypatch.setattr(stepping, "compute_loss", spoil)
    before = fitted(still, "(2, 3, 4)")[1]
    run, kept, model = trained(still, "(2, 3, 4)", batch_size=4, accumulation=3, epochs=1)
    assert run.diverged and not run.curve and not kept
    start = make_classifier(still, before, NAMES).state_dict()
    assert differing(start, model.state_dict()) == set()
    assert all(p.grad is None for p in model.parameters())


def test_shuffled_batches_mix_lengths(still):
    """Rows go to batches as a permutation has them, and the rest comes last."""
    batches = shuffle_plainly(10, 4, np.random.default_rng(3))
    assert np.concatenate(batches).tolist() == np.random.default_rng(3).permutation(10).tolist()
    assert [len(rows) for rows in batches] == [4, 4, 2]
    length, none, shuffled = (
        trained(still, "(3, 4, 4)", batch_size=5, batching=which)[0].curve
        for which in ("length", None, "shuffled")
    )
    assert length == none != shuffled


def test_the_epoch_that_is_kept():
    """Of equal metrics, as with few validation rows, the lower loss counts; else the earlier."""
    curve = [Epoch(1, 0.9, 0.50, 0.7), Epoch(2, 0.8, 0.40, 0.6), Epoch(3, 0.7, 0.40, 0.9)]
    assert [pick_epoch(curve, keep).epoch for keep in ("best", "lowest-loss", "last")] == [3, 2, 3]
    curve = [Epoch(1, 0.9, 0.69, 0.5), Epoch(2, 0.8, 0.65, 0.5), Epoch(3, 0.7, 0.65, 0.5)]
    assert pick_epoch(curve, "best").epoch == 2


@pytest.mark.parametrize("keep", ["best", "lowest-loss"])
def test_patience_looks_at_what_is_kept(still, keep):
    """The run ends with the first epoch that is not better than all before it."""
    run = trained(still, "(3, 4, 4)", keep=keep, epochs=8, patience=1, learning_rate=5e-3)[0]
    ranks = [(epoch.value if keep == "best" else 0, -epoch.loss) for epoch in run.curve]
    better = [rank > max(ranks[:n]) for n, rank in enumerate(ranks) if n]
    assert better == [True] * (len(better) - 1) + [False]


def test_dropout_is_active_in_training_only(bert, still):
    """The first step's loss is that of the start in eval mode, but for dropout."""
    for encoder, same in ((bert, False), (still, True)):
        run, _, _ = trained(encoder, "(3, 4, 4)", epochs=1, batch_size=12)
        plan = fitted(encoder, "(3, 4, 4)")[1]
        model = make_classifier(encoder, plan, NAMES)
        inputs = encoder.batch(encoder.tokenize(SENTENCES[:12]), np.arange(12))
        loss = cross_entropy(model(**inputs).logits, torch.from_numpy(labels_for(12))).item()
        assert (run.curve[-1].training_loss == pytest.approx(loss, abs=1e-5)) == same


def test_validation_is_that_of_the_model_after_the_epoch(bert):
    run, _, model = trained(bert, "(2, 4, 4)", keep="last")
    inputs = bert.batch(bert.tokenize(SENTENCES[12:16]), np.arange(4))
    labels = torch.from_numpy(labels_for(4, 1))
    with torch.no_grad():
        found = model.eval()(**inputs).logits
    assert run.curve[-1].loss == pytest.approx(cross_entropy(found, labels).item(), abs=1e-5)
    assert run.curve[-1].value == (found.argmax(dim=1) == labels).float().mean().item()


def test_overfits_16_rows(still):
    plan = fitted(still, "(3, 4, 4)")[1]
    examples = examples_of(still, plan, labels_for(16, seed=5))
    assert len(set(examples.answers.labels.tolist())) == 3
    settings = Settings(epochs=30, batch_size=4, patience=15)
    model, steps = make_classifier(still, plan, NAMES), []
    run, kept = training.train(
        still, model, examples, examples, learning_rate=3e-3, seed=0, settings=settings,
        advance=lambda done, total: steps.append((done, total)),
    )  # fmt: skip
    assert steps == [(step, 120) for step in range(1, len(steps) + 1)]
    assert pick_epoch(run.curve, "best").value == 1.0
    model.load_state_dict(kept, strict=False)
    found = predict(still, model, examples).argmax(dim=1)
    assert found.tolist() == examples.answers.labels.tolist()


def test_seeds_repeat_bit_for_bit_and_touch_no_one_elses(bert):
    numpy_state = np.random.get_state()[1].tolist()  # noqa: NPY002
    state = torch.get_rng_state()
    (one, kept, _), (again, same, _) = (trained(bert, "(2, 3, 4)", seed=4) for _ in range(2))
    assert np.random.get_state()[1].tolist() == numpy_state  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), state)
    assert one.curve == again.curve and differing(kept, same) == set()
    torch.rand(5)
    np.random.rand(5)  # noqa: NPY002
    assert trained(bert, "(2, 3, 4)", seed=4)[0].curve == one.curve
    other, moved, _ = trained(bert, "(2, 3, 4)", seed=5)
    assert other.curve != one.curve and differing(kept, moved) == set(kept)


# --- Losses that are not finite ----------------------------------------------------------------


def explode_at(monkeypatch, step):
    """Make the step of that number, from 0, one of 1e38 times the peak rate."""
    monkeypatch.setattr(stepping, "learning_rate_at", lambda at, *_: 1e38 if at == step else 1.0)


def test_a_huge_rate_ends_the_run(bert):
    run, kept, _ = trained(bert, "(3, 4, 4)", learning_rate=1e38, warmup=0.0)
    assert run.diverged and run.curve == [] and kept == {}
    assert "nan" in run.stopped and "step 2 of 6" in run.stopped


@pytest.mark.parametrize(
    ("step", "keep"),
    [(3, "best"), (4, "last"), (5, "best"), *whole_only((3, "last"), (4, "best"), (5, "last"))],
)
def test_the_epochs_before_count(bert, monkeypatch, step, keep):
    """3 steps an epoch: the second one fails at its first step, later, or with its last step."""
    explode_at(monkeypatch, step)
    run, kept, _ = trained(bert, "(3, 4, 4)", epochs=3, keep=keep)
    assert run.diverged and f"step {min(step + 2, 6)} of 9" in run.stopped
    explode_at(monkeypatch, None)
    short, expected, _ = trained(bert, "(3, 4, 4)", epochs=1)
    assert run.curve == short.curve and differing(kept, expected) == set()
    assert not short.diverged and short.stopped is None


# --- What counts -------------------------------------------------------------------------------


@pytest.fixture
def scripted(monkeypatch):
    """Make every epoch end with a value told before; gives the parameters that each ended with."""
    ends = []

    def script(*values):
        ends.clear()
        left = iter(values)
        monkeypatch.setattr(training, "judge_logits", lambda *_: next(left))
        return ends

    def predicted(encoder, model, examples):
        ends.append({n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad})
        return predict(encoder, model, examples)

    monkeypatch.setattr(training, "predict", predicted)
    return script


@pytest.mark.parametrize(("keep", "kept_epoch"), [("best", 2), ("last", 4)])
def test_best_and_last_epoch(bert, scripted, keep, kept_epoch):
    ends = scripted(0.5, 0.75, 0.25, 0.75)
    run, kept, _ = trained(bert, "(3, 4, 4)", epochs=4, keep=keep)
    chosen = [pick_epoch(run.curve, one).epoch for one in ("best", "last", keep)]
    assert chosen == [2, 4, kept_epoch]
    assert [epoch.value for epoch in run.curve] == [0.5, 0.75, 0.25, 0.75]
    assert differing(kept, ends[kept_epoch - 1]) == set()
    assert differing(ends[1], ends[3]) == set(kept) and run.stopped is None


@pytest.mark.parametrize(
    ("values", "patience", "epochs"),
    [
        ((0.5, 0.7, 0.6, 0.7, 0.9), 2, 4),
        ((0.5, 0.7, 0.6, 0.8, 0.7), 2, 5),
        ((0.5, 0.5, 0.6, 0.7, 0.8), 1, 2),
        ((0.5, 0.4, 0.4, 0.4, 0.4), None, 5),
    ],
)
def test_patience(bert, scripted, values, patience, epochs):
    ends = scripted(*values)
    run, kept, _ = trained(bert, "(3, 4, 4)", epochs=5, patience=patience)
    best = max(range(epochs), key=lambda at: (values[at], -at))
    assert len(run.curve) == epochs and differing(kept, ends[best]) == set()
    expected = f"no epoch was better than epoch {best + 1}"
    assert run.stopped == (expected if epochs < 5 else None) and not run.diverged


# --- Steps -------------------------------------------------------------------------------------


@pytest.fixture
def stepped():
    """Record the rate and the gradient's norm of every step of an optimizer."""
    seen = []

    def look(optimizer, *_):
        grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
        norm = torch.cat([grad.flatten() for grad in grads]).norm().item()
        seen.append(({group["lr"] for group in optimizer.param_groups}, norm))

    handle = register_optimizer_step_pre_hook(look)
    yield seen
    handle.remove()


def test_gradients_are_clipped(bert, stepped):
    trained(bert, "(3, 4, 4)", epochs=1)
    free = [norm for _, norm in stepped]
    stepped.clear()
    trained(bert, "(3, 4, 4)", epochs=1, max_grad_norm=0.25)
    bound = [norm for _, norm in stepped]
    assert len(free) == 3 and min(free) > 0.3
    assert bound == pytest.approx([0.25] * 3, rel=1e-4)


def test_the_rate_follows_the_schedule_through_all_epochs(bert, stepped):
    trained(bert, "head:4", epochs=3, warmup=0.25, learning_rate=0.5)
    expected = [0.5 * rate for rate in (0, 1 / 2, 1, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7)]
    assert all(len(rates) == 1 for rates, _ in stepped)
    assert [rates.pop() for rates, _ in stepped] == pytest.approx(expected)


def test_weight_decay_is_of_matrices_only(still):
    """After one step of AdamW all that decay makes of it is −rate · decay · start."""
    plain, decayed = (
        trained(still, "full", weight_decay=w, epochs=1, batch_size=12, warmup=0.0)[1]
        for w in (0.0, 0.5)
    )
    start = dict(make_classifier(still, Plan((1, 2, 3, 4), 4), NAMES).named_parameters())
    vectors = {name for name, p in start.items() if p.ndim == 1}
    assert any("bias" in name for name in vectors) and any("Norm" in name for name in vectors)
    for name, p in start.items():
        expected = 0.0 if name in vectors else -1e-3 * 0.5 * p.detach()
        torch.testing.assert_close(
            decayed[name] - plain[name], torch.zeros_like(p) + expected, rtol=0, atol=5e-7
        )
    assert differing(plain, decayed).isdisjoint(vectors)


# --- The schedule and the settings -------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 7, 50, 333])
@pytest.mark.parametrize("warmup", [0.0, 0.06, 0.1, 0.5, 0.99])
def test_the_rate_is_that_of_transformers(steps, warmup):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = get_linear_schedule_with_warmup(optimizer, math.floor(warmup * steps + 0.5), steps)
    expected = []
    for _ in range(steps + 1):
        expected.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert [learning_rate_at(step, steps, warmup) for step in range(steps + 1)] == expected
