"""What the column `seq` of a table of iterations states: tokens, the side of a map, or the size of a video."""

from __future__ import annotations

import math
import re

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.workloads.video import DENOISERS, video_tokens

_VIDEO = re.compile(r"([0-9]{1,9}) *[x*] *([0-9]{1,9}) *[x*] *([0-9]{1,9})")


def stated_seq(model: str, text: str, number: float) -> tuple[float, str]:
    """The size of a row's input, and why it has none or "".

    **Arguments:** `text`, `number`: the cell as it is written, and as a number or NaN. The size of a video, of
    FRAMESxHEIGHTxWIDTH pixels, is its tokens.
    """
    takes, video = model.lower() in DENOISERS, _VIDEO.fullmatch(text.lower())
    if video is None:
        wrong = takes and not number > 0
        return number, f"seq '{text}' is neither tokens nor a video as in 81x720x1280" if wrong else ""
    if not takes:
        hint = did_you_mean(model, DENOISERS)
        return math.nan, f"seq '{text}' is the size of a video, which {', '.join(DENOISERS)} take; not {model}.{hint}"
    try:
        return float(video_tokens(*map(int, video.groups()))), ""
    except InputError as error:
        return math.nan, f"seq '{text}': {error}"
