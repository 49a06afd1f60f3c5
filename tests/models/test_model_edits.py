"""Every family: blocks cut, passed over, moved, re-initialised and put back."""

import pytest
import torch
from scipy.stats import kstest, truncnorm
from transformers import AutoModelForSequenceClassification

from inputs import expect_refused
from layerscout.models import (
    apply_edits,
    edit,
    eval_mode,
    list_reinitialized,
    locate_parameters,
    make_classifier,
    untie_blocks,
)
from layerscout.plans import EditSpec, WeightInit, make_edits, make_plan
from tiny import inputs_of, is_norm, logits_of
from tuned import copied, differing, load


@pytest.fixture(scope="module")
def encoder(encoder):
    """Return the encoder with blocks of their own, which can be edited apart."""
    tied = encoder.model.config.model_type == "albert"
    return untie_blocks(encoder) if tied else encoder


def states_of(encoder):
    found = []
    with eval_mode(encoder.model):
        encoder.visit(inputs_of(encoder), lambda _, state: found.append(state))
    return found


def output_of(encoder):
    with eval_mode(encoder.model):
        return encoder.cut(inputs_of(encoder), encoder.blocks)


def changed(encoder, written, **options):
    return apply_edits(encoder, EditSpec(make_edits(written), encoder.blocks, **options))


@pytest.mark.parametrize("head", [1, 2, 3, 4])
def test_a_truncated_model_ends_with_the_state(encoder, head):
    short = changed(encoder, f"truncate:{head}")
    assert short.blocks == head
    assert torch.equal(output_of(short), states_of(encoder)[head])


@pytest.mark.parametrize(("first", "last"), [(2, 2), (2, 3), (3, 4), (1, 1), (1, 3)])
def test_passing_blocks_over_is_starting_behind_them(encoder, first, last):
    with eval_mode(encoder.model):
        inputs, below = inputs_of(encoder), states_of(encoder)[first - 1]
        expected = states_from(encoder, inputs, below, last)
    with edit(encoder.model, f"skip:{first}-{last}"):
        assert encoder.blocks == 4 - (last - first + 1)
        assert torch.equal(output_of(encoder), expected)
    assert encoder.blocks == 4


def states_from(encoder, inputs, state, block):
    """Run the blocks above `block` one by one in a loop of our own, through hooks on the model."""
    calls = []
    blocks = list(encoder.model.get_submodule(encoder.family.blocks))

    def remember(module, args, kwargs):
        calls.append((module, args, kwargs))

    handles = [b.register_forward_pre_hook(remember, with_kwargs=True) for b in blocks]
    with eval_mode(encoder.model):
        encoder.model(**inputs)
    for handle in handles:
        handle.remove()
    for module, args, kwargs in calls[block:]:
        found = module(state, *args[1:], **kwargs)
        state = found[0] if encoder.family.tuples else found
    return state


@pytest.mark.parametrize(
    "written",
    [
        "truncate:2",
        "skip:2-3",
        "skip:1",
        "reinit:1,3",
        "preserve:2",
        "permute:4,2,1,3",
        "permute:1",
    ],
)
def test_undoing_restores_every_bit(encoder, written):
    model = encoder.model
    before, config, expected = copied(model), model.config.to_dict(), output_of(encoder)
    edit(model, written, seed=3).close()
    assert not differing(copied(model), before)
    assert model.config.to_dict() == config
    assert torch.equal(output_of(encoder), expected)


def test_a_copy_leaves_the_encoder_as_it_is(encoder):
    before, expected = copied(encoder.model), output_of(encoder)
    other = changed(encoder, "reinit:2-3 + truncate:3")
    assert (other.blocks, encoder.blocks) == (3, 4)
    assert torch.equal(output_of(encoder), expected)
    assert not differing(copied(encoder.model), before)
    assert not torch.equal(output_of(other), states_of(encoder)[3])


def test_only_the_blocks_named_are_drawn_and_norms_begin_again(encoder):
    other = changed(encoder, "reinit:2,4")
    found = locate_parameters(other.model)
    own = encoder.model.state_dict()
    for name, parameter in other.model.named_parameters():
        inside = found[name] in ((2,), (4,))
        if not inside:
            assert torch.equal(parameter, own[name]), name
        elif is_norm(name):
            one = 0 if encoder.model.config.model_type.startswith("gemma") else 1
            assert torch.all(parameter == (0 if name.endswith("bias") else one)), name
        else:
            assert not torch.equal(parameter, own[name]), name
            assert parameter.abs().max() <= 0.04
    names = {name for name, place in found.items() if place in ((2,), (4,))}
    assert list_reinitialized(other.model, other.edit_spec) == names


def test_norms_may_be_kept_and_the_released_code_followed(encoder):
    own = encoder.model.state_dict()
    found = locate_parameters(encoder.model)
    inside = {name for name, place in found.items() if place == (3,)}
    kept, released = (
        changed(encoder, "reinit:3", weight_init=WeightInit(**{rule: True})).model.state_dict()
        for rule in ("keep_layer_norm", "as_released")
    )
    for name in inside:
        if is_norm(name):
            assert torch.equal(kept[name], own[name])
        elif name.endswith("bias"):
            assert torch.equal(released[name], own[name])
            assert not torch.equal(kept[name], own[name])
        else:
            assert released[name].abs().max() <= 0.0008
            assert kept[name].abs().max() > 0.02


def test_a_block_is_drawn_alike_whatever_else_is_drawn(encoder):
    few, many, other = (
        copied(changed(encoder, written, seed=seed).model)
        for written, seed in (("reinit:3", 0), ("reinit:2-4", 0), ("reinit:3", 1))
    )
    names = {name for name, place in locate_parameters(encoder.model).items() if place == (3,)}
    assert not names & differing(few, many) and names & differing(few, other)


def test_permuted_blocks_run_in_their_new_order(encoder):
    inputs = inputs_of(encoder)
    with edit(encoder.model, "permute:1,3,2,4"):
        found = states_of(encoder)
    with eval_mode(encoder.model):
        expected = states_of(encoder)[1]
    for only in (3, 2, 4):
        with edit(encoder.model, f"truncate:{only}"), eval_mode(encoder.model):
            expected = states_from(encoder, inputs, expected, only - 1)
    torch.testing.assert_close(found[4], expected)


def test_an_edited_model_saves_as_an_ordinary_checkpoint(encoder, tmp_path):
    other = changed(encoder, "skip:2 + reinit:3", seed=2)
    model = make_classifier(other, make_plan("full", 3), ["a", "b"])
    model.save_pretrained(tmp_path)
    again, report = AutoModelForSequenceClassification.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    inputs = inputs_of(encoder)
    assert torch.equal(logits_of(again, inputs), logits_of(model, inputs))


def test_a_model_with_a_head_is_edited_too(encoder):
    model, inputs = make_classifier(encoder, make_plan("head:4", 4), ["a", "b"]), inputs_of(encoder)
    before = logits_of(model, inputs)
    with edit(model, "reinit:2-4"):
        assert not torch.equal(logits_of(model, inputs), before)
    assert torch.equal(logits_of(model, inputs), before)


def test_blocks_take_over_the_mode_of_the_model(encoder):
    model = encoder.model
    with edit(model.train(), "skip:3"):
        model.eval()
    assert not any(module.training for module in model.modules())


def test_edits_are_undone_in_the_reverse_order(encoder):
    before = copied(encoder.model)
    first = edit(encoder.model, "skip:2")
    later = edit(encoder.model, "permute:1,3,2")
    expect_refused("undo the later edit first", first.close)
    later.close()
    later.close()  # again does nothing
    first.close()
    assert encoder.blocks == 4
    assert list(encoder.model.state_dict()) == list(before)


def test_what_cannot_be_edited(encoder):
    expect_refused("`seed` must be a whole number", edit, encoder.model, "reinit:1", seed=-1)
    expect_refused("must name blocks in 1..4", edit, encoder.model, "skip:5")
    for written in ("skip:1", "permute:2,1,3,4"):
        if encoder.model.config.model_type == "modernbert":  # whose first block lacks a norm
            expect_refused("something else after saving and loading", changed, encoder, written)
        else:
            assert changed(encoder, written).blocks in (3, 4)


# --- The distribution --------------------------------------------------------------------------


@pytest.mark.parametrize("released", [False, True])
def test_weights_are_drawn_from_the_truncated_normal(tmp_path, released):
    encoder = load(tmp_path)
    other = changed(encoder, "reinit:1-4", weight_init=WeightInit(as_released=released)).model
    places, named = locate_parameters(other), dict(other.named_parameters())
    inside = [named[name] for name, place in places.items() if isinstance(place, tuple)]
    drawn = torch.cat([weight.flatten() for weight in inside if weight.ndim == 2]).numpy()
    cut = 0.04 if not released else 0.0008
    expected = truncnorm(-cut / 0.02, cut / 0.02, scale=0.02)
    assert kstest(drawn, expected.cdf).pvalue > 0.01
    assert drawn.std() == pytest.approx(expected.std(), rel=0.05)
    if released:  # 38 times too small
        assert truncnorm(-2, 2, scale=0.02).std() / expected.std() == pytest.approx(38, abs=0.2)


# --- Blocks that share weights -----------------------------------------------------------------


def test_shared_blocks_are_edited_where_their_groups_stay_even(tmp_path):
    tied = load(tmp_path, "albert")
    before = copied(tied.model)
    for written in ("truncate:2", "reinit:1-4"):
        with edit(tied.model, written):
            output_of(tied)
    assert tied.blocks == 4
    for written in ("permute:1", "reinit:1", "preserve:1"):
        words = "cannot change places … re-initialised together … --untie"
        expect_refused(words, edit, tied.model, written)
    two = load(tmp_path / "two", "albert", num_hidden_groups=2)
    with edit(two.model, "skip:2,4"):
        output_of(two)
    expect_refused("share them in the same way", edit, two.model, "skip:2")
    assert not differing(before, copied(tied.model))
