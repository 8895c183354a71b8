"""One example of every command, as its `--help` ends: a command line, and above it what its file holds."""

from __future__ import annotations

import textwrap
from typing import Any

EXAMPLES = {
    "estimate": """
        jaxperf estimate llama-3-70b --device h100-sxm --tp 8 --batch 32 --weights fp8
        """,
    "rank": """
        jaxperf rank llama-3-70b --devices 'all(memory >= 64 GB)' --slo tpot=30ms
        """,
    "sweep": """
        sweep.yaml:  model: llama-3-70b
                     axes: {device: [h100-sxm, mi300x], batch: "powers(1, 256)"}
                     metrics: [tpot, tokens_per_second, memory, reason]
        jaxperf sweep sweep.yaml -o points.parquet --plot pareto.png
        """,
    "trace": """
        jaxperf trace jax.numpy:matmul --shapes "f32[64,512],f32[512,512]" --device l4
        """,
    "kernels": """
        gemms.csv:   device,dtype,m,n,k
                     h100-sxm,bf16,4096,4096,4096
        jaxperf kernels gemms.csv -o predicted.csv
        """,
    "graphs": """
        runs.csv:    device,model,mode,seq,batch
                     h100-sxm,bert-large,inf,512,16
        jaxperf graphs runs.csv -o predicted.csv
        """,
    "batches": """
        batches.csv: gpu,tp,model,dtype,framework,batch,output_len,prompt_lengths
                     h100-sxm,1,llama-3-8b,bf16,sglang,2,32,"[512, 384]"
        jaxperf batches batches.csv -o predicted.csv
        """,
    "collectives": """
        ops.csv:     gpu,op,num_gpus,bytes
                     h100-sxm,all_reduce,8,67108864
        jaxperf collectives ops.csv -o predicted.csv
        """,
    "train": """
        runs.csv:    model,gpu,n_gpus,tp,pp,seq,global_batch
                     llama-3-8b,h100-sxm,64,2,1,4096,256
        jaxperf train runs.csv -o predicted.csv
        """,
    "serve": """
        served.csv:  model,gpu,n_gpu,tp,framework,input_len,output_len,concurrency
                     llama-3-8b,h100-sxm,1,1,vllm,1024,256,16
        jaxperf serve served.csv -o predicted.csv
        """,
    "edge": """
        jaxperf edge networks.csv --device pixel2 --adapt ten-measured.csv -o out.csv
        """,
    "simulate": """
        requests.csv: arrived_at,prefill_tokens,decode_tokens
                      0.0,512,128
                      0.4,768,64
        engine.json:  {"sched": "vllm_v1", "model": "gpt2", "device": "h100-sxm"}
        jaxperf simulate requests.csv --settings engine.json -o times.csv
        """,
    "capacity": """
        engine.json: {"sched": "vllm_v1", "model": "gpt2", "device": "h100-sxm"}
        jaxperf capacity requests.csv --settings engine.json --slo ttft=1s,tpot=50ms
        """,
    "colocate": """
        jaxperf colocate a.csv b.csv --settings a.json --settings b.json --sharing mps
        """,
    "rl": """
        jaxperf rl iteration.json -o phases.csv
        """,
    "replay": """
        jaxperf replay run/ --device b200 --n 1024 -o operations.csv
        """,
    "loopnest": """
        jaxperf loopnest hbm_pim -o levels.csv
        """,
    "map": """
        jaxperf map hbm2_die --chain attention:heads=32,queries=1024,dim=128
        """,
    "codesign": """
        jaxperf codesign resnet-50 --base case.json --free buffer.size=16384,65536
        """,
    "design": """
        jaxperf design llama-3-8b --base h100-sxm --slo tpot=12ms -o my-chip.toml
        """,
    "measure": """
        jaxperf measure --device gpu --family gemm --dtype bf16 -o rows.parquet
        """,
    "calibrate": """
        few.csv:     device,framework,dtype,m,n,k,latency_us
                     my-gpu,torch,bf16,4096,4096,4096,310
        jaxperf calibrate --adapt few.csv -o mine
        jaxperf kernels gemms.csv -o predicted.csv --params mine
        """,
    "validate": """
        jaxperf validate kernels --card --family gemm
        """,
    "devices": """
        jaxperf devices h100-sxm
        """,
    "models": """
        jaxperf models path/to/config.json
        """,
    "scenarios": """
        jaxperf scenarios
        """,
    "plan train": """
        jaxperf plan train llama-3-70b --device h100-sxm --n 64,256
        """,
    "plan serve": """
        jaxperf plan serve llama-3-8b --device h100-sxm --n 4 --slo ttft=1s,tpot=30ms
        """,
}


def write_example(context: Any, formatter: Any) -> None:
    """Ends the help of the command of `context`, in click's formatter, with its example."""
    words = context.command_path.partition(" ")[2]
    if words in EXAMPLES:
        formatter.write_paragraph()
        formatter.write("Example:\n" + textwrap.indent(textwrap.dedent(EXAMPLES[words]).strip(), "  ") + "\n")
