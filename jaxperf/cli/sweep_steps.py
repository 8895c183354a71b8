"""A sweep of prefill, decode or serving: devices with their fitted efficiencies, and what the numbers rest on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxperf.core.sustained_file import SustainedTable
    from jaxperf.io.sweep_file import SweepFile
    from jaxperf.report.sweep_question import Prepared
    from jaxperf.serving.study import Study


def steps_study(question: SweepFile) -> Study:
    """What a sweep file asks. Raises `InputError` for a model, task, metric or launch mode that does not exist."""
    from jaxperf.io.huggingface import load_model
    from jaxperf.serving.study import Study, default_metrics

    metrics = question.metrics or default_metrics(question.task)
    return Study(load_model(question.model), question.task, metrics, question.launch)


def prepare_steps(study: Study, question: SweepFile, table: SustainedTable) -> Prepared:
    """The study with the axes of a sweep file, and where its numbers come from: what `table` has of the devices.

    **Raises:** `InputError` for what is wrong with the axes.
    """
    from jaxperf.core.sustained_file import calibration_of
    from jaxperf.io.fleet import select_axis_devices
    from jaxperf.report.sweep_question import Prepared
    from jaxperf.serving.estimate import check_tensor_splits
    from jaxperf.serving.notes import notes_of_many
    from jaxperf.serving.provenance import provenance_of
    from jaxperf.serving.study_values import MEDIA

    directories = [question.devices_directory] if question.devices_directory else []
    specs, values = select_axis_devices(question.axes, directories)
    known = {name: calibration_of(spec, table) for name, spec in specs.items()}
    axes = study.axes(values, {name: each.calibrated for name, each in known.items()})
    labels = {name: column.tolist() for one in axes for name, column in one.labels.items()}
    if "tensor_parallel" in labels:
        check_tensor_splits(study.model, labels["tensor_parallel"])
    weights, cache = (list(dict.fromkeys(labels[name])) for name in ("weights", "kv_cache"))
    change = "kv_cache: {} among the axes"
    ranks = max(labels.get("tensor_parallel", [1]))
    notes = notes_of_many(study.model, list(specs.values()), weights, cache, MEDIA in labels, change, ranks)
    return Prepared(study, axes, provenance_of(study.model, known, weights), notes)
