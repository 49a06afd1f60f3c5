"""What makes transformers' pipeline join words at spaces; model cards show the class as it is."""
# mypy: ignore-errors
# ruff: noqa: D102

from transformers import TokenClassificationPipeline


class Words(TokenClassificationPipeline):
    """Takes for words what stands between spaces, as in tuning."""

    def gather_pre_entities(self, sentence, *args, **kwargs):
        pieces = []
        for piece in super().gather_pre_entities(sentence, *args, **kwargs):
            if sentence[piece["start"] : piece["end"]].strip(" "):
                start = sentence.rfind(" ", 0, piece["end"]) + 1
                piece["is_subword"] = bool(pieces) and pieces[-1]["start"] == start
                if piece["is_subword"] and pieces[-1]["word"] == "▁":  # of no character
                    piece["is_subword"] = pieces.pop()["is_subword"]
                piece |= {"start": start, "end": f"{sentence} ".index(" ", piece["end"])}
                pieces.append(piece)
        return pieces
