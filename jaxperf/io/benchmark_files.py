"""Requests as benchmark clients have them: conversations in the form of ShareGPT, and detailed results of vLLM's."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from hwspecs.errors import InputError

CONVERSATION = "conversations"
LETTERS = 4  # characters a token of English text, OpenAI's rule of thumb: no tokenizer is read here
COUNTED = f"tokens of a conversation are counted as {LETTERS} characters each"
AT_ONCE = "conversations state no arrived_at; all arrive at once, as vLLM's client sends them without a rate"
Row = Mapping[str, Any]


def conversation_rows(rows: Sequence[Row], names: Mapping[str, Sequence[str]]) -> tuple[list[Row], tuple[str, ...]]:
    """Rows of conversations as rows of requests, and what was assumed, in sentences: nothing of what the
    first states under one of the `names` of a column.

    The first message is the prompt and the second the output, as in vLLM's and SGLang's clients. A conversation with
    less than that has None for the length that it lacks.
    """
    written = {name.strip().lower() for name in (rows[0] if rows else ())}
    open_names = [name for name, others in names.items() if written.isdisjoint(others)]
    found: list[Row] = []
    for row in rows:
        prompt, output = itertools.islice(itertools.chain(_messages(row), (None, None)), 2)
        guessed = {"arrived_at": 0.0, "prefill_tokens": _tokens(prompt), "decode_tokens": _tokens(output)}
        rest = {name: cell for name, cell in row.items() if name != CONVERSATION}
        found.append({**{name: guessed[name] for name in open_names}, **rest})
    counted = (COUNTED,) if {"prefill_tokens", "decode_tokens"}.intersection(open_names) else ()
    return found, (*counted, AT_ONCE) if "arrived_at" in open_names else counted


def _messages(row: Row) -> list[Any]:
    messages = row.get(CONVERSATION)
    return messages if isinstance(messages, list) else []


def _tokens(message: Any) -> int | None:
    text = message.get("value", message.get("content")) if isinstance(message, dict) else None
    return -(-len(text) // LETTERS) if isinstance(text, str) else None


def result_rows(result: Row, where: str) -> list[dict[str, Any]]:
    """The requests of a result that `vllm bench serve --save-result --save-detailed` wrote: with the times that were
    measured, which count from the first request sent.

    **Raises:** `InputError` where the lists are not alike, or nothing says when requests were sent.
    """
    lists = {name: result.get(name) for name in ("input_lens", "output_lens", "start_times", "ttfts", "itls")}
    given = {name: cells for name, cells in lists.items() if isinstance(cells, list)}
    lengths = {name: len(cells) for name, cells in given.items()}
    if not {"input_lens", "output_lens"} <= given.keys() or len(set(lengths.values())) != 1:
        said = ", ".join(f"{name} {length}" for name, length in lengths.items()) or "none"
        raise InputError(f"{where}: input_lens and output_lens have a number for each request; there are: {said}.")
    if "start_times" not in given and str(result.get("request_rate")) != "inf":
        raise InputError(
            f"{where}: the result has no start_times and its request_rate is not inf, so nothing says when requests "
            "were sent; newer versions of vLLM write them with --save-detailed."
        )
    starts = given.get("start_times", [0.0] * lengths["input_lens"])
    numbers = [cell for cell in starts if isinstance(cell, int | float)]
    rows = []
    for number, start in enumerate(starts):
        sent = start - min(numbers, default=0.0) if isinstance(start, int | float) else start
        row = {"req": number, "arrived_at": sent}
        row |= {"prefill_tokens": given["input_lens"][number], "decode_tokens": given["output_lens"][number]}
        if "start_times" in given and "ttfts" in given and "itls" in given:
            row |= _measured(sent, given["ttfts"][number], given["itls"][number])
        rows.append(row)
    return rows


def _measured(sent: Any, first: Any, gaps: Any) -> dict[str, float | None]:
    """When a request had its first token and its last [s]."""
    try:
        token = sent + first
        return {"first_token_at": token, "completed_at": token + sum(gaps)}
    except TypeError:
        return {"first_token_at": None, "completed_at": None}
