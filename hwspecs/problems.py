"""Turn pydantic's validation errors into sentences for a reader who knows neither pydantic nor this code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from hwspecs.errors import InputError, did_you_mean, nearest
from hwspecs.values import FORMATS

_Location = tuple[int | str, ...]


def explain(error: ValidationError, model: type[BaseModel], origin: str) -> str:
    """One sentence a problem, one a line: file, field, what is wrong, what is allowed, the nearest valid name."""
    details = error.errors(include_url=False)
    misspelled = _misspelled(details, model)
    lines = []
    for detail in details:
        location = tuple(part for part in detail["loc"] if part != "[key]")
        if detail["type"] == "missing" and location in misspelled:
            continue  # the sentence about the misspelled key already says it
        lines.append(f"{origin}: {_sentence(detail, location, model)}")
    return "\n".join(dict.fromkeys(lines))


def _misspelled(details: Sequence[Any], model: type[BaseModel]) -> set[_Location]:
    """Places whose field is missing only because its name is misspelled."""
    places = set()
    for detail in details:
        if detail["type"] == "extra_forbidden":
            *parent, key = detail["loc"]
            places.update((*parent, name) for name in nearest(str(key), _fields(model, tuple(parent)), count=1))
    return places


def _sentence(detail: Any, location: _Location, model: type[BaseModel]) -> str:
    field = ".".join(map(str, location)) or "the file"
    given = detail["input"]
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            allowed = _fields(model, location[:-1])
            hint = did_you_mean(str(location[-1]), allowed)
            return f"{field} is not a known field.{hint} Allowed: {', '.join(allowed)}."
        case "missing":
            return f"{field} is missing; {_needs(model, location)}."
        case "value_error":
            problem = context.get("error")
            text = str(problem) if isinstance(problem, InputError) else detail["msg"].removeprefix("Value error, ")
            text = text if text.endswith((".", "?")) else f"{text}."
            if not location:
                return text
            return f"{field} {text}" if text.startswith("is ") else f"{field}: {text}"
        case "literal_error":
            if detail["loc"][-1] == "[key]":
                hint = did_you_mean(str(given), FORMATS)
                return f"{field} is not a known number format.{hint} Allowed: {', '.join(FORMATS)}."
            hint = did_you_mean(str(given), _choices(context))
            return f"{field} is {_shown(given)}; allowed: {', '.join(_choices(context))}.{hint}"
        case "string_pattern_mismatch":
            return f"{field} is {_shown(given)}; {_pattern_words(str(location[-1]))}."
        case "too_short":
            return f"{field} is empty; give at least one."
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"{field} is {_shown(given)}, but must be a table; {_needs(model, location)}."
        case "string_type":
            return f"{field} is {_shown(given)}, but must be text in quotes."
        case "int_type" | "int_parsing" | "int_from_float":
            return f"{field} is {_shown(given)}, but must be a whole number."
        case "bool_type":
            return f"{field} is {_shown(given)}, but must be true or false."
        case "greater_than_equal" | "less_than_equal":
            bound = "at least" if detail["type"] == "greater_than_equal" else "at most"
            return f"{field} is {_shown(given)}, but must be {bound} {context.get('ge', context.get('le'))}."
        case "tuple_type" | "list_type":
            return f"{field} is {_shown(given)}, but must be text or a list of texts."
    return f"{field} is {_shown(given)}: {detail['msg'][:1].lower()}{detail['msg'][1:]}."


def _needs(model: type[BaseModel], location: _Location) -> str:
    """What to write for a field, from the type the schema gives it."""
    fields = _fields(model, location)
    if "quantity" in fields:
        return 'write it as { quantity = "...", source = "...", confidence = "..." }'
    if fields:
        return f"give a table with {', '.join(fields)}"
    return "give it a value"


def _fields(model: type[BaseModel], location: _Location) -> list[str]:
    """Names of the fields at a location inside a model; an empty list where there is none."""
    current: Any = model
    for part in location:
        if isinstance(current, type) and issubclass(current, BaseModel):
            info = current.model_fields.get(str(part))
            current = None if info is None else _inner(info.annotation)
        elif isinstance(current, Mapping):
            current = current["value"]
        else:
            return []
    if isinstance(current, type) and issubclass(current, BaseModel):
        return list(current.model_fields)
    return []


def _inner(annotation: Any) -> Any:
    """Strip Optional and Annotated; a dict type becomes a mapping that remembers the type of its values."""
    arguments = get_args(annotation)
    if getattr(annotation, "__origin__", None) is dict:
        return {"value": arguments[1]}
    candidates = [a for a in arguments if isinstance(a, type) and issubclass(a, BaseModel)]
    return candidates[0] if candidates else annotation


def _choices(context: Mapping[str, Any]) -> list[str]:
    return [part.strip("' ") for part in str(context.get("expected", "")).replace(" or ", ", ").split(", ")]


def _pattern_words(field: str) -> str:
    if field == "released":
        return "write a year or a year and month, such as 2022 or 2022-09"
    if field == "date":
        return "write a date such as 2024, 2024-05 or 2024-05-31"
    return "write lower-case letters and digits joined by dashes, such as h100-sxm"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
