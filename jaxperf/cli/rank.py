"""`jaxperf rank MODEL`: devices x layouts x batch under latency targets, best first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jaxperf.cli.options import (
    EXIT_INFEASIBLE,
    AsJson,
    DevicesDirectory,
    KvCache,
    Launch,
    Model,
    Output,
    OutputFile,
    Plot,
    Price,
    Prompt,
    Quiet,
    SustainedRates,
    Weights,
    parse_prices,
    parse_slo,
    say_not_written,
)

if TYPE_CHECKING:
    from pathlib import Path

    from jaxperf.report.ranking import RankingReport


def rank(
    model: Model,
    devices: Annotated[
        str,
        typer.Option(
            "--devices", metavar="WHICH", help="all, all(memory >= 64 GB, kind = gpu), or names and TOML files."
        ),
    ] = "all",
    slo: Annotated[
        str, typer.Option("--slo", metavar="TARGETS", help="Targets, such as ttft=1s,tpot=30ms (default: none).")
    ] = "",
    by: Annotated[
        str | None,
        typer.Option(
            "--by", metavar="OBJECTIVE", help="tokens/s/device (default), tokens/J, or tokens/$ (default with --price)."
        ),
    ] = None,
    price: Price = None,
    max_devices: Annotated[
        int, typer.Option("--max-devices", metavar="N", help="Devices of the largest replica to consider.")
    ] = 16,
    max_batch: Annotated[int, typer.Option("--max-batch", metavar="N", help="Largest batch to consider.")] = 1024,
    prompt: Prompt = 2048,
    output: Output = 256,
    weights: Weights = None,
    kv_cache: KvCache = "bf16",
    launch: Launch = "graph",
    devices_dir: DevicesDirectory = None,
    params: SustainedRates = None,
    out: OutputFile = None,
    plot: Plot = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Rank devices for a model under TTFT and TPOT targets. The best layout and batch of each, and why the first is
    first."""
    from jaxperf.cli.compute import start_jax

    start_jax(quick=True)
    from jaxperf.io.fleet import select_devices
    from jaxperf.io.tables import check_output, json_text, write_rows
    from jaxperf.report.asked import rank as ask
    from jaxperf.report.plots import check_picture
    from jaxperf.report.ranking import print_ranking, ranking_rows
    from jaxperf.serving.ranking import TARGETS

    check_output(out)
    check_picture(plot)
    directories = devices_dir or ()
    report = ask(
        model,
        devices,
        slo=parse_slo(slo, TARGETS),
        by="tokens/$" if by is None and price else by,
        prices=parse_prices(price, select_devices(devices, directories)) if price else {},
        max_devices=max_devices,
        max_batch=max_batch,
        launch=launch,
        directories=directories,
        params=params,
        prompt=prompt,
        output=output,
        kv_cache=kv_cache,
        **({} if weights is None else {"weights": weights}),
    )
    rows = ranking_rows(report)
    if as_json:
        typer.echo(json_text({"provenance": report.provenance, "rows": rows}))
    else:
        print_ranking(report, quiet)
    if out is not None:
        write_rows(rows, out, {"jaxperf": json_text(report.provenance)})
    if plot is not None and report.ranking.ranked:
        _draw(report, plot)
    if not report.ranking.ranked:
        say_not_written(plot)
        raise typer.Exit(EXIT_INFEASIBLE)


def _draw(report: RankingReport, path: Path) -> None:
    from jaxperf.report.plots import ranking_figure, save
    from jaxperf.report.ranking import score_interval

    ranked = report.ranking.ranked
    ends = [score_interval(report, index) for index in range(len(ranked))]
    title = f"{report.model.name}: {report.ranking.objective} under {report.targets_text}"
    names, scores = [entry.device for entry in ranked], [entry.score for entry in ranked]
    save(ranking_figure(title, report.ranking.objective, names, scores, ends), path)
