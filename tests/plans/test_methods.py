"""Methods: names, options, and what each of them refuses."""

import sys
from dataclasses import asdict

import pytest

from inputs import expect_refused
from layerscout.plans import (
    METHODS,
    Adapter,
    Full,
    LoRA,
    PlanRequest,
    PrefixTuning,
    TuneRequest,
    make_method,
)


def test_by_name_and_options():
    assert make_method("full") == Full()
    assert make_method("adapter", bottleneck=64, rank=None) == Adapter(64)
    assert make_method("lora", rank=4, lora_alpha=1) == LoRA(4, 1.0)
    assert make_method("prefix-tuning") == PrefixTuning(16)
    assert make_method(Adapter(8)) == Adapter(8)


@pytest.mark.parametrize("name", METHODS)
def test_described_ones_can_be_made_again(name):
    method = make_method(name)
    assert make_method(name, **asdict(method)) == method


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("adaptor", {}, "adapter"),
        (None, {}, "method"),
        ("lora", {"bottleneck": 4}, "adapter"),
        ("full", {"rank": 4}, "lora"),
        (Adapter(), {"bottleneck": 4}, "bottleneck"),
        ("adapter", {"bottleneck": 0}, "from 1 on, got 0"),
        ("adapter", {"bottleneck": 1.5}, "1.5"),
        ("adapter", {"adapter_init": "xavier"}, "identity"),
        ("lora", {"rank": 0}, "rank"),
        ("lora", {"lora_alpha": 0.0}, "above 0"),
        ("lora", {"lora_alpha": float("nan")}, "nan"),
        ("prefix-tuning", {"virtual_tokens": 0}, "virtual_tokens"),
    ],
)
def test_what_cannot_be_is_refused(name, options, words):
    expect_refused(words, make_method, name, **options)


def test_a_missing_peft_is_said_before_any_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    expect_refused("pip install 'layerscout[peft]'", TuneRequest, plan="top:1", method="lora")
    expect_refused("pip install 'layerscout[peft]'", PlanRequest, strategy="auto", method="lora")
