"""`jaxperf simulate` of pools and of drawn workloads: why requests have no times, and what goes together."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from jaxperf.cli.simulated import NEVER, OUTGREW

SERVED = ("--settings", "s.json", "--model", "gpt2", "--device", "a100-sxm-80gb", "-o", "out.csv")
SETTINGS = {"sched": "vllm_v1", "block_size": 16}


def test_of_pools_the_one_that_never_admits_a_request_is_named(cli, own_folder: Path) -> None:
    """The longest does not fit for its prefill, the next not for its decode, which the third then outgrows."""
    rows = ("900,9", "640,9", "600,99", "100,9")
    (own_folder / "r.csv").write_text(
        "\n".join(["arrived_at,prefill_tokens,decode_tokens", *(f"0,{row}" for row in rows)])
    )
    pools = {"prefill": {"num_blocks": 50}, "decode": {"num_blocks": 40}}
    (own_folder / "s.json").write_text(json.dumps({**SETTINGS, "pools": pools}))
    assert cli("simulate", "r.csv", *SERVED).exit_code == 0
    with (own_folder / "out.csv").open(newline="") as file:
        reasons = [row["reason"] for row in csv.DictReader(file)]
    assert reasons == [
        f"{NEVER} (prefill: 57 blocks of 16 tokens for its prompt, num_blocks is 50)",
        f"{NEVER} (decode: 41 blocks of 16 tokens for its prompt and the next token, num_blocks is 40)",
        OUTGREW,
        "",
    ]
