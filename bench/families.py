"""Write the page of families from the table.

python bench/families.py --write docs/families.md
"""

import argparse
from pathlib import Path

import transformers

from layerscout.models import FAMILIES, Family
from writing import table

# As their authors write them; the first row of each is a usual checkpoint.
NAMES = {
    "albert": ("ALBERT", "albert/albert-base-v2"),
    "bert": ("BERT", "bert-base-uncased"),
    "camembert": ("CamemBERT", "almanach/camembert-base"),
    "deberta": ("DeBERTa", "microsoft/deberta-base"),
    "deberta-v2": ("DeBERTa v2, v3", "microsoft/deberta-v3-base"),
    "distilbert": ("DistilBERT", "distilbert-base-uncased"),
    "electra": ("ELECTRA", "google/electra-base-discriminator"),
    "eurobert": ("EuroBERT", "EuroBERT/EuroBERT-210m"),
    "gemma2": ("Gemma 2", "google/gemma-2-2b"),
    "gemma3_text": ("Gemma 3, text", "google/gemma-3-1b-pt"),
    "gpt2": ("GPT-2", "gpt2"),
    "gpt_neox": ("GPT-NeoX, Pythia", "EleutherAI/pythia-160m"),
    "llama": ("Llama, SmolLM2", "HuggingFaceTB/SmolLM2-135M"),
    "mistral": ("Mistral", "mistralai/Mistral-7B-v0.3"),
    "modernbert": ("ModernBERT", "answerdotai/ModernBERT-base"),
    "mpnet": ("MPNet", "microsoft/mpnet-base"),
    "nomic_bert": ("nomic-bert", "nomic-ai/nomic-embed-text-v1.5"),
    "olmo2": ("OLMo 2", "allenai/OLMo-2-0425-1B"),
    "phi3": ("Phi-3, Phi-4", "microsoft/Phi-3-mini-4k-instruct"),
    "qwen2": ("Qwen2, Qwen2.5", "Qwen/Qwen2.5-0.5B"),
    "qwen3": ("Qwen3", "Qwen/Qwen3-0.6B"),
    "roberta": ("RoBERTa", "roberta-base"),
    "xlm-roberta": ("XLM-R", "FacebookAI/xlm-roberta-base"),
    "xlm-roberta-xl": ("XLM-R XL", "facebook/xlm-roberta-xl"),
}


def describe(key: str, family: Family) -> list[str]:
    """Return the cells of a family."""
    config = transformers.CONFIG_MAPPING[key]
    choices = config in transformers.MODEL_FOR_MULTIPLE_CHOICE_MAPPING
    words = config in transformers.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING
    name, example = NAMES[key]
    return [
        name,
        f"`{key}`",
        f"`{example}`",
        {"first": "first token", "last": "last token"}[str(family.reads)],
        f"`{family.final_norm}`" if family.final_norm else "",
        "yes" if family.prefixed else "no",
        "yes" if choices else "no",
        "yes" if words else "no",
    ]


def write() -> str:
    """Write the page."""
    columns = ["family", "`model_type`", "for example", "head reads", "norm after the blocks"]
    columns += ["prefix-tuning", "multiple choice", "words"]
    kinds = {"Encoders": "first", "Decoders": "last"}
    parts = [
        f"## {kind}\n\n"
        + table(columns, [describe(k, f) for k, f in FAMILIES.items() if f.reads == reads])
        for kind, reads in kinds.items()
    ]
    return INTRODUCTION + "\n" + "\n\n".join(parts) + "\n"


INTRODUCTION = """# Families of models

Everything that layerscout does works on these families: scans, plans, full fine-tuning, LoRA,
adapters, edits, truncation, exports. The table is made from the code by `python bench/families.py
--write docs/families.md`.

- **Head reads**: which token's state the family's classification head reads. Some encoders can be
  configured to read all tokens.
- **Norm after the blocks**: it belongs to the head and is trained with it. State L is what the
  last block gives, before that norm; a model cut at state ℓ norms state ℓ, as transformers' own
  shorter model does.
- **Prefix-tuning** needs attention without windows and relative distances; a Mistral, Qwen or
  Phi-3 whose configuration has a sliding window is refused.
- Where transformers has no head for **multiple choice**, or for **words** (token classification),
  such tasks are not tuned. A scan of words needs no such head.

**Other families** that transformers has are checked when they are loaded: the blocks must be in
one list and take the state as their first argument, a pass resumed at a state must give the same
as a whole pass, padding must change nothing, and the lower blocks must work as a shorter model. If
so, a warning is printed, and everything except adapters and prefix-tuning works; a second warning
says if costs are rough, as with experts. Otherwise the model is refused with the reason. Among
those that pass are Gemma 1, Phi, OPT, BLOOM, MPT, StarCoder 2, SmolLM3, OLMo 3, GLM, Mixtral,
gpt-oss, ERNIE and RemBERT.

**Refused with the reason**: quantised weights (GPTQ, AWQ, bitsandbytes, GGUF), encoder–decoders,
models that read images or sound, models that read more than text (save their language model as a
checkpoint of its own), families without a classification head, and models that need their own code.

**Decoders.** A tokenizer without a padding token uses its end-of-text token for padding; a warning
says so, and the exported tokenizer keeps it. A tokenizer that joins the two texts of a pair without
a separator gets a line break in between, which is saved with it. Batches are padded on the right,
and exported tokenizers pad there too, since GPT-2 counts positions from the padding on. An empty
text is read as one token where the tokenizer makes none of it; the exported model fails on it, and
its card names the token to give instead. Caches of keys and values are off.
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", type=Path)
    path = parser.parse_args().write
    if path:
        path.write_text(write(), encoding="utf-8")
    else:
        print(write())
